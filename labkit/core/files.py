"""Writing a file so that it is never there in part."""

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes | memoryview, sync: bool = False) -> None:
    """Write so that a crash leaves the old file or the new one, never half of it.

    sync    even where the machine itself stops; this takes some milliseconds
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[:60]}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
