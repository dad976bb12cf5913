"""Export one family: ``python -m unseen.write_files FOLDER NAME...`` with ``models`` on the path, too.

What it is: the exporter of the zoo over the table of this package.
What it is not: a table of models (``families.py``).
Who calls it: ``unseen_models.py``, in a process of its own, for what is not there yet.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import transformers

from models import export as exporter
from unseen import families


def main() -> int:
    """Export the families named; one that fails says so and does not stop the others."""
    folder, *names = sys.argv[1:]
    warnings.filterwarnings("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    Path(folder).mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names:
        try:
            line = exporter.export_example(name, families.build(name), Path(folder))
        except Exception as error:  # the row says what the exporter said
            failed += 1
            line = f"{name:24} FAILED: {type(error).__name__}: {str(error)[:2000]}"
        print(line, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
