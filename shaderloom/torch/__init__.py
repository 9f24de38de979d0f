"""PyTorch's door: modules as sessions, and a backend of ``torch.compile``.

``torch`` is optional: it is imported by the modules of this folder alone, and by none of them before they are used.
"""
