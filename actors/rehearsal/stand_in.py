"""Starting the stand-in of a rehearsal and telling its agents about the tasks.

An import contract keeps this module and the agent away from every other server.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from actors.rehearsal.simulated_agent import Brief
from actors.rehearsal.stand_in_process import StandInProcess, port_of_last_time
from actors.rehearsal.stand_in_state import catalogue_with
from schemas.study import Study


@contextmanager
def start_stand_in(
    directory: Path, study: Study, briefs: Sequence[Brief]
) -> Iterator[StandInProcess]:
    """A running stand-in with the models of a simulated study; its files stand in ``directory``."""
    port = port_of_last_time(directory)
    catalogue = directory / "catalogue.json"
    directory.mkdir(parents=True, exist_ok=True)
    catalogue.write_bytes(catalogue_with(study.models))
    with StandInProcess(
        directory, simulated_study=study.simulated, port=port, catalogue=catalogue
    ) as stand_in:
        agents = {model.key: model.rehearsal for model in study.models if model.rehearsal}
        stand_in.admin.rehearse(agents, briefs)
        yield stand_in
