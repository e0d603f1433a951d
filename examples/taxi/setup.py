from setuptools import find_packages, setup

with open("requirements.txt") as file:
    requirements = file.read().split()

setup(
    name="taxifare",
    version="1.0",
    description="Taxi fares from the distance of the ride",
    packages=find_packages(),
    install_requires=requirements,
)
