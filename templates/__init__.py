"""The WGSL templates: ``*.wgsl.j2`` files and the macros that they share. No Python logic lives here."""
