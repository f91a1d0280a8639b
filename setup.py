"""Build the optional native twins of the hot loops.

The pure-Python versions are always installed, so a missing compiler costs speed, never function.
EDGED_REQUIRE_NATIVE=1 turns a failed build into an error (used by developers and when packaging).
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

NAMES = ("_native", "_frames", "_runs", "_rows", "_codes", "_s2", "_acks")
EXTENSIONS = cythonize(
    [
        Extension(
            f"edged.core.{name}",
            [f"edged/core/{name}.pyx"],
            depends=["edged/core/_frames.pxd", "edged/core/_checksum.pxd"],
            extra_compile_args=["-O3", "-fno-strict-aliasing"],
        )
        for name in NAMES
    ],
    language_level=3,
)
for extension in EXTENSIONS:
    # Said here because cythonize() makes new objects and forgets it.
    extension.optional = os.environ.get("EDGED_REQUIRE_NATIVE") != "1"

setup(license="Apache-2.0", ext_modules=EXTENSIONS)
