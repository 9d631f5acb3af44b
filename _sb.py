import sys,time,cProfile,pstats
from benchmarks.scale import problems
import nest
from nest.planner import _read
from nest.spec import Problem
from nest.hooks.registry import registry
from nest.formulate.instance import build_instance
from importlib import import_module
huge=(8,16,16,8,8)
P=problems.deep(1000, problems.h100(huge), 8192)
t=time.process_time(); i=build_instance(_read(P,Problem),registry(),None); print('build',len(i.candidates),time.process_time()-t)
sv=import_module('nest.solve.dp.solver')
pr=cProfile.Profile()
t=time.process_time()
if len(sys.argv)>1: pr.enable()
r=sv.solve(i); pr.disable(); print('solve',time.process_time()-t,r.status,r.batch_time,r.statistics, r.solution.replicas, len(r.solution.stages), i.candidates[r.solution.stages[0].candidate].name)
if len(sys.argv)>1: pstats.Stats(pr).sort_stats('cumtime').print_stats(45)
