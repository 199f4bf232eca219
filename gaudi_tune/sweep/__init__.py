"""A sweep: its record (``record``), its decisions (``policies``) and its search (``search``)."""
