// The list of workers for Prometheus's http_sd_configs: where the metrics of each are, and how.
//
//   [{"targets":["10.0.0.3:7790"],"labels":{"meshwright_role":"worker","worker":"w1",
//     "host":"...","__scheme__":"https"}}]
// Whose metrics are in the clear has no "__scheme__": what scrapes by TLS with a token must not be
// told to send it there.
//
// Thread rule: pure.
#pragma once

#include <string>
#include <vector>

#include "proto/views.h"

namespace meshwright::controller {

// Without workers that are gone, or have no metrics.
std::string ScrapeTargets(const std::vector<proto::WorkerInfo>& workers);

}  // namespace meshwright::controller
