"""A folder for the path of Python: what it holds is found as the package ``onnxruntime``."""
