"""Arrays of any library of the array API standard: tensors, linear algebra, memory. No statistics."""
