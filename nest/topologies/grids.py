"""Tori and meshes: grids of devices, neighbours linked."""

from nest.network.graph import LinkGraph, grid
from nest.spec import MeshSpec, TorusSpec
from nest.topologies.parametric import ParametricNetwork


def _torus(source: TorusSpec) -> LinkGraph:
    wrap = source.wrap * len(source.shape) if len(source.wrap) == 1 else source.wrap
    return grid(source.shape, wrap, source.bandwidth, source.latency)


def _mesh(source: MeshSpec) -> LinkGraph:
    return grid(source.shape, [False] * len(source.shape), source.bandwidth, source.latency)


torus = ParametricNetwork("torus", TorusSpec, _torus)
mesh = ParametricNetwork("mesh", MeshSpec, _mesh)
