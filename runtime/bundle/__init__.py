"""The format of shader bundles: reading, writing, and the checks of both."""
