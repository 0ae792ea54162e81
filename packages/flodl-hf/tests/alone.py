"""Use of the installed wheel: its errors and profiles, with no optional library around."""

from flodl_hf import MissingExtraError, load_extra

for library, extra in (("huggingface_hub", "hub"), ("tokenizers", "full")):
    try:
        load_extra(library, extra)
    except MissingExtraError as error:
        assert f"flodl-hf[{extra}]" in str(error), error
    else:
        raise AssertionError(f"{library} is installed without the [{extra}] extra")
print("flodl-hf works alone")
