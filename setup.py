"""Build the optional native twin of the hot loops.

The pure-Python versions are always installed, so a missing compiler costs speed, never function.
EDGED_REQUIRE_NATIVE=1 turns a failed build into an error (used when packaging).
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

EXTENSION = Extension(
    "edged.core._native",
    ["edged/core/_native.pyx"],
    extra_compile_args=["-O3", "-fno-strict-aliasing"],
    optional=os.environ.get("EDGED_REQUIRE_NATIVE") != "1",
)

setup(ext_modules=cythonize([EXTENSION], language_level=3))
