"""Wire types, made by tools/make-python-stubs.sh. Nothing here is for users of the package."""
