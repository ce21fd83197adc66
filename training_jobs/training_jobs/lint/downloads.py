"""What calls of a script download from the internet: models and data sets by their names, and addresses."""

from __future__ import annotations

import ast
import re

from training_jobs.lint.script import Script, constant, keyword, name_of, whole_name

# A name on Hugging Face's Hub: an owner's, or one of the first models, which have none.
_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?")
_OF_FILES = (
    "json",
    "csv",
    "parquet",
    "text",
    "arrow",
    "imagefolder",
    "audiofolder",
    "videofolder",
    "webdataset",
    "xml",
)
_OF_HUB = ("snapshot_download", "hf_hub_download")
_ADDRESSED = ("urlretrieve", "urlopen", "get", "load_state_dict_from_url", "download_url", "wget")


def downloaded(script: Script, call: ast.Call) -> str:
    """Return what a call downloads, as a clause; "" where it does not, or the source does not say.

    Args:
        script: The script.
        call: A call in it.
    """
    name, whole = name_of(call), whole_name(call)
    first = constant(call.args[0]) if call.args else None
    text = first if isinstance(first, str) else ""
    local = constant(keyword(call, "local_files_only")) is True
    on_hub = bool(_ON_HUB.fullmatch(text)) and not local
    if name == "from_pretrained" and on_hub:
        return f"{whole}({text!r}) loads from Hugging Face's Hub"
    if name == "load_dataset" and on_hub and text not in _OF_FILES:
        return f"load_dataset({text!r}) loads from Hugging Face's Hub"
    if name in _OF_HUB and not local:
        return f"{name}(...) loads from Hugging Face's Hub"
    if whole == "torch.hub.load" and constant(keyword(call, "source")) != "local":
        return f"torch.hub.load({text!r}) loads from GitHub"
    if name in _ADDRESSED and text.startswith(("http://", "https://")):
        return f"{whole}({text!r}) loads from an address"
    if constant(keyword(call, "download")) is True or whole == "nltk.download":
        return f"{whole}(...) downloads its data"
    if _is_torchvision(script, call, whole):
        return f"{whole}(...) downloads its weights"
    return ""


def _is_torchvision(script: Script, call: ast.Call, whole: str) -> bool:
    """Whether a call makes a model of torchvision with weights, which it downloads."""
    weights = keyword(call, "weights")
    given = weights is not None and not (isinstance(weights, ast.Constant) and weights.value is None)
    pretrained = constant(keyword(call, "pretrained")) is True
    return "torchvision" in script.imports and "models." in whole and (given or pretrained)
