"""A package with a code generator for relu and the loader of its modules, for tests that install it."""

from __future__ import annotations

from pathlib import Path

from fakes.installed_package import install

NAME = "relu_of_package"
KIND = "relu_of_package.module"
SOURCE = '''
"""relu by numpy, times the option `factor`."""
import json
import numpy as np
from tilewright import byoc


class ReluModule(byoc.Module):
    kind = "relu_of_package.module"
    properties = byoc.ModuleProperties.RUNNABLE | byoc.ModuleProperties.BINARY_SERIALIZABLE

    def __init__(self, name, factor):
        super().__init__()
        self.name, self.factor = name, factor

    def find_function(self, name):
        return byoc.array_function(self.run) if name == self.name else None

    def function_names(self):
        return (self.name,)

    def run(self, x, y):
        y[...] = np.maximum(x, 0) * np.float32(self.factor)

    def save_to_bytes(self):
        return json.dumps([self.name, self.factor]).encode()


def load(data):
    return ReluModule(*json.loads(data))


def register():
    pattern = byoc.is_op("relu")(byoc.wildcard())
    byoc.register_codegen("relu_of_package", generate, patterns=[("relu", pattern)])


def generate(graph, name, options):
    return ReluModule(name, options.get("factor", 1.0))
'''
ENTRY_POINTS = {
    "tilewright.byoc": {NAME: f"{NAME}:register"},
    "tilewright.module_kinds": {KIND: f"{NAME}:load"},
}


def install_relu(site: Path, source: str = SOURCE) -> Path:
    """Install it into a folder; returns the folder."""
    return install(site, NAME, source, ENTRY_POINTS)
