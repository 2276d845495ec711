// GpuMesh: emulated GPUs of one process with all that a runtime needs of them.
//
// Thread rule: as its parts. Ownership: outlives the runtimes.
#pragma once

#include <memory>
#include <vector>

#include "tests/emulated/libraries.h"
#include "tests/emulated/nccl.h"
#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {

struct GpuMesh {
  explicit GpuMesh(int devices, emulated::EmulatedOptions options = {})
      : count(devices), driver(Of(devices, options)) {
    libraries.AddTo(toolkit);
  }

  // Of a runtime that has a device per rank; programs as LocalOptions().
  RuntimeOptions Options(std::vector<ir::Program> programs) {
    RuntimeOptions options = LocalOptions(count, std::move(programs));
    options.gpus.driver = &driver;
    options.gpus.toolkit = &toolkit;
    options.gpus.nccl = &nccl;
    options.gpus.combiner = &combiner;
    for (int i = 0; i < count; ++i) options.gpus.indices.push_back(i);
    return options;
  }

  static Result<std::unique_ptr<JobRuntime>> Start(RuntimeOptions options) {
    MW_ASSIGN_OR_RETURN(auto runtime, JobRuntime::Load(std::move(options)));
    MW_ASSIGN_OR_RETURN(const std::string invitation, runtime->Invitation());
    MW_TRY(runtime->Connect({invitation}));
    return runtime;
  }

  const int count;
  emulated::EmulatedDriver driver;
  emulated::EmulatedLibraries libraries;
  ops::cuda::Toolkit toolkit;
  emulated::EmulatedNetwork network;
  emulated::EmulatedNccl nccl{network};
  emulated::EmulatedCombiner combiner;

 private:
  static emulated::EmulatedOptions Of(int devices, emulated::EmulatedOptions options) {
    options.devices = devices;
    return options;
  }
};

// For a device that does not end: a runtime leaves threads behind then, which use the mesh. Never
// freed.
inline GpuMesh& MeshForEver(int devices) {
  static auto* const meshes = std::make_unique<std::vector<std::unique_ptr<GpuMesh>>>().release();
  return *meshes->emplace_back(std::make_unique<GpuMesh>(devices));
}

}  // namespace meshwright::worker
