"""A group of commands that helps whoever mistypes: what is near, and where an option belongs."""

import difflib
import shlex
from collections.abc import Iterator

import click


class CommandGroup(click.Group):
    """Lists its commands in the order of use, each with its whole first sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=200)) for name, one in found if one]
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """An option of a command stands behind the command; said with the line to type."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            place = next((i for i, word in enumerate(given) if self.get_command(ctx, word)), None)
            if place is None:
                raise
            line = shlex.join([*ctx.command_path.split(), *given[place:], *given[:place]])
            raise click.UsageError(
                f"{error.option_name} is no option of `{ctx.command_path}`: options stand behind "
                f"the command they belong to: `{line}`",
                ctx,
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with commands of the same or a similar name from the whole program."""
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        root = ctx.find_root()
        assert isinstance(root.command, click.Group)
        everywhere = list(_every_command(root.command, root, ()))
        same = [words for words in everywhere if words[-1] == name]
        here = tuple(ctx.command_path.split()[1:])
        near = difflib.get_close_matches(name, self.list_commands(ctx), cutoff=0.7)
        hints = [" ".join(words) for words in same or [(*here, one) for one in near]]
        did_you_mean = " or ".join(f"`{root.info_name} {hint}`" for hint in hints)
        ctx.fail(f"No such command {name!r}." + (f" Did you mean {did_you_mean}?" if hints else ""))


def _every_command(
    group: click.Group, ctx: click.Context, above: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        yield (*above, name)
        if isinstance(command, click.Group):
            yield from _every_command(command, ctx, (*above, name))
