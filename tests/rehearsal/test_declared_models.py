"""A rehearsal is possible with any model that a study declares."""

import msgspec

from actors.rehearsal.stand_in_state import CATALOGUE, Catalogue, catalogue_with
from schemas.repair.study import RepairStudy
from schemas.study import Model
from schemas.study_file import parse_study
from tests.projections.tiny_study import STUDY_TOML


def declared() -> Model:
    study = parse_study(STUDY_TOML.encode())
    assert isinstance(study, RepairStudy)
    return study.models[0]


def test_a_model_that_nobody_has_downloaded_is_offered_as_declared() -> None:
    ours = msgspec.json.decode(CATALOGUE.read_bytes(), type=Catalogue)
    own = msgspec.structs.replace(
        declared(), key="lab/own", variant="lab/own@q6", quantization="q6", format="gguf"
    )
    offered = msgspec.json.decode(catalogue_with([own]), type=Catalogue)
    assert offered.models[:-1] == ours.models
    new = offered.models[-1]
    assert (new.key, new.selected_variant, new.quantization.name) == ("lab/own", "lab/own@q6", "q6")
    assert (new.format, new.max_context_length) == ("gguf", own.max_context_length)
    assert own.reasoning in new.capabilities["reasoning"]["allowed_options"]  # type: ignore[index]


def test_a_known_model_in_another_variant_stands_in_the_place_of_ours() -> None:
    (ours,) = (
        model
        for model in msgspec.json.decode(CATALOGUE.read_bytes(), type=Catalogue).models
        if model.key == "openai/gpt-oss-20b"
    )
    fields = {
        "key": ours.key,
        "quantization": ours.quantization.name,
        "format": ours.format,
        "max_context_length": ours.max_context_length,
        "reasoning": "low",
    }
    same = msgspec.structs.replace(declared(), variant=ours.selected_variant, **fields)
    assert msgspec.json.decode(catalogue_with([same]), type=Catalogue) == msgspec.json.decode(
        CATALOGUE.read_bytes(), type=Catalogue
    )
    other = msgspec.structs.replace(same, variant="openai/gpt-oss-20b@8bit")
    found = {
        model.key: model
        for model in msgspec.json.decode(catalogue_with([other]), type=Catalogue).models
    }
    assert found[ours.key].selected_variant == "openai/gpt-oss-20b@8bit"
