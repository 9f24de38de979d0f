"""Models of torchvision, timm and transformers as PyTorch's users run them, compared with eager PyTorch.

Weights are random, nothing is downloaded. ``python -m tests.pytorch_zoo`` (or ``./dev pytorch``) installs the libraries
in an environment of their own, runs every model there and writes docs/guide/pytorch-models.md; the soak test does so
without the page, and three small models are tests of the full tier.
"""
