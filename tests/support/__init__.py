"""What tests stand on that is no part of the product."""
