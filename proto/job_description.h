// What a job was asked to be, and its weights, once they are written.
//
// Thread rule: values.
#pragma once

#include "ir/job.h"

namespace meshwright::proto {

struct JobDescription {
  ir::JobRequest job;
  ir::BlobRef weights;  // sha256 empty: there are none
};

}  // namespace meshwright::proto
