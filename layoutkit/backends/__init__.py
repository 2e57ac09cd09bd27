"""Arrays of any library, in and out of a conversion: one file a library."""
