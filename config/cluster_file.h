// A cluster file: TOML -> mesh::Cluster, for plans on machines that are not there.
//
//   name = "a100-8x8"
//   [[hosts]]                 # as many groups of equal hosts as there are
//   name = "a"                # hosts a0 ... a7
//   count = 8
//   devices = 8               # of each host
//   device = "a100-40g"       # a known profile or one of [[profiles]]
//   nic_gbyte_per_s = 50      # all cards of a host, one direction; absent: no limit
//   [links.host]              # per device and direction
//   latency_us = 5
//   gbyte_per_s = 235
//
// All keys with their meaning: docs/clusters.md. An unknown key is an error with file, line, column
// and the nearest known name.
//
// Thread rule: pure functions, except for reading files.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "mesh/cluster.h"

namespace meshwright::config {

struct ClusterSource {
  std::string text;
  std::string file = "cluster.toml";  // for messages, and where relative paths start
  // Reads the text of a measured profile.
  std::function<Result<std::string>(const std::string& path)> read_file;
};

// Checked so far that mesh::TopologyOfCluster accepts it. Errors: kInvalidArgument
// "cluster.toml:4:9: ..." naming key, value and what would do.
Result<mesh::Cluster> ParseClusterFile(const ClusterSource& source);
// Reads the file, then as above. Errors: also kNotFound naming the path.
Result<mesh::Cluster> LoadClusterFile(const std::string& path);

}  // namespace meshwright::config
