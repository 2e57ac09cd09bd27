"""What a conversion or a sum will do: integers in, a plan out. Touches no array and no machine."""
