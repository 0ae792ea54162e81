"""Projects that come with a template of their manifest, to be copied and changed."""

from __future__ import annotations

from flodl_cli.config.discover import TEMPLATE_ENDINGS, find_manifest, is_template
from flodl_cli.context.application import AppContext
from flodl_cli.errors import FdlError
from flodl_cli.terminal import shown_path


def offer_copy(context: AppContext, *, may_ask: bool) -> None:
    """Copy the template of a manifest if the user agrees; else say that it is used in place.

    Raises:
        FdlError: It cannot be copied.
    """
    manifest = find_manifest(context.directory)
    if manifest is None or not is_template(manifest):
        return
    terminal = context.terminal
    target = manifest.removesuffix(TEMPLATE_ENDINGS[0]).removesuffix(TEMPLATE_ENDINGS[1])
    question = f"There is no {shown_path(target)}. Copy {shown_path(manifest)}?"
    if may_ask and terminal.is_interactive and terminal.confirm(question, default=True):
        import shutil

        try:
            shutil.copyfile(manifest, target)
        except OSError as error:
            raise FdlError(f"{target} cannot be written: {error.strerror}") from error
        return
    terminal.note(f"using {shown_path(manifest)}; copy it to {shown_path(target)} to change it")
