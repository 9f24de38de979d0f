"""Measured configurations by device, the shipped ones and the user's own: ``database.py`` is the file,
``device_records.py`` selects what applies to a device."""
