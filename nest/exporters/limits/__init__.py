"""What frameworks can run, and why no more: a function for each, by the name of its exporter.

`sharded`: those that shard with FSDP or ZeRO. `meshes`: MaxText, Galvatron, nanotron. `megatron`: Megatron-LM.
`relatives`: what runs Megatron Core under other names of its settings.
"""
