"""The store on real filesystems under real faults: power cuts, kills, full and failing disks.

`python -m tests.disks --help` runs any of it for as long as one likes; the test files run a bounded part.
"""
