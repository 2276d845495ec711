// The main function of a worker binary of one's own, with host actors linked in:
//
//   int main(int argc, char** argv) {
//     meshwright::actor::Registry registry;
//     MW_CHECK(registry.Add<Move>("grid-world", MakeGridWorld, MoveCodec()).ok());
//     return meshwright::worker::Main(argc, argv, registry);
//   }
//
// It takes the flags of `meshwright worker`, does what that does, and has the registry's types of
// actors. These run in processes of their own, one for each job, which the worker starts from the
// same binary in a hidden mode ("host-actors --fd=N --silent-ms=N"), as it does with what runs a
// job's programs ("mesh-executor ..."): main does nothing before this call that these processes
// should not do.
//
// In the installed package: find_package(meshwright CONFIG REQUIRED COMPONENTS worker), link
// meshwright::worker_main. Thread rule: from main.
#pragma once

#include "actor/registry.h"

namespace meshwright::worker {

// The exit code of the process.
int Main(int argc, char** argv, const actor::Registry& registry);

}  // namespace meshwright::worker
