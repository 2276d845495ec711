// A job file of a client that cannot resolve it: the controller does, by what the client says of
// its files.
//
// The files are laid out in a temporary folder under the client's own paths, and the job file is
// read as if this process were on that machine: uploaded ones are links to what was uploaded, of
// others there are the first bytes, which have the headers. Nothing else of this machine is read.
// Thread rule: any; one call takes a thread for as long as a model takes to build.
#pragma once

#include "proto/job_file.h"

namespace meshwright::cli {

// A proto::ResolveFile.
proto::ResolvedFile ResolveJob(const proto::JobFile& file, const proto::StoreFile& store);

}  // namespace meshwright::cli
