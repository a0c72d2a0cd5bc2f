"""What methods do beyond the attributes of self: names followed to what they mean."""
