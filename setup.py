"""A shim for tools that call setup.py: everything is said in pyproject.toml."""
from setuptools import setup

setup()
