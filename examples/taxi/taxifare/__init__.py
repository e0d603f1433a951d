"""Taxi fares from the distance of the ride."""
