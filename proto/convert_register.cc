// How a worker registers.
#include "proto/convert.h"

namespace meshwright::proto {

v1::Register Encode(const Register& m) {
  v1::Register out;
  out.set_name(m.name);
  out.set_incarnation(m.incarnation.value());
  out.set_devices(m.devices);
  out.set_memory_bytes(m.memory_bytes);
  out.set_address(m.address);
  out.set_host_id(m.host_id);
  out.set_version(m.version);
  out.set_protocol_major(m.protocol_major);
  out.set_protocol_minor(m.protocol_minor);
  out.set_metrics_address(m.metrics_address);
  out.set_cluster_id(m.cluster_id);
  out.set_max_term(m.max_term.value());
  out.set_device_profile(m.device_profile);
  out.set_threads_per_device(m.threads_per_device);
  out.set_host_cores(m.host_cores);
  out.mutable_cpus()->Assign(m.cpus.begin(), m.cpus.end());
  out.set_device_kind(m.device_kind);
  out.set_device_name(m.device_name);
  out.set_host_memory_bytes(m.host_memory_bytes);
  out.set_disk_bytes(m.disk_bytes);
  out.set_no_scratch_dir(m.no_scratch_dir);
  for (const ir::DataRoot& root : m.data_roots) *out.add_data_roots() = Encode(root);
  for (const std::string& type : m.actor_types) out.add_actor_types(type);
  for (const ir::DataRoot& root : m.checkpoint_roots) *out.add_checkpoint_roots() = Encode(root);
  out.set_keeps_log(m.keeps_log);
  for (const HeldMesh& mesh : m.meshes) {
    out.add_meshes()->set_mesh_gen(mesh.mesh_gen.value());
    out.mutable_meshes()->rbegin()->set_job_id(mesh.job.value());
  }
  return out;
}

Register Decode(const v1::Register& wire) {
  Register m;
  m.name = wire.name();
  m.incarnation = Incarnation(wire.incarnation());
  m.devices = wire.devices();
  m.memory_bytes = wire.memory_bytes();
  m.address = wire.address();
  m.host_id = wire.host_id();
  m.version = wire.version();
  m.protocol_major = wire.protocol_major();
  m.protocol_minor = wire.protocol_minor();
  m.metrics_address = wire.metrics_address();
  m.cluster_id = wire.cluster_id();
  m.max_term = Term(wire.max_term());
  m.device_profile = wire.device_profile();
  m.threads_per_device = wire.threads_per_device();
  m.host_cores = wire.host_cores();
  m.cpus.assign(wire.cpus().begin(), wire.cpus().end());
  m.device_kind = wire.device_kind();
  m.device_name = wire.device_name();
  m.host_memory_bytes = wire.host_memory_bytes();
  m.disk_bytes = wire.disk_bytes();
  m.no_scratch_dir = wire.no_scratch_dir();
  for (const v1::DataRoot& root : wire.data_roots()) m.data_roots.push_back(Decode(root));
  m.actor_types.assign(wire.actor_types().begin(), wire.actor_types().end());
  for (const v1::DataRoot& root : wire.checkpoint_roots()) {
    m.checkpoint_roots.push_back(Decode(root));
  }
  m.keeps_log = wire.keeps_log();
  for (const v1::HeldMesh& mesh : wire.meshes()) {
    m.meshes.push_back({MeshGeneration(mesh.mesh_gen()), JobId(mesh.job_id())});
  }
  return m;
}

}  // namespace meshwright::proto
