// Arguments of `records` and `compare`.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace meshwright::cli {

struct RecordsArgs {
  int64_t id = 0;
  std::string to;                                      // folder of all records; or a collector
  std::vector<std::string> formats = {"tensorboard"};  // | jsonl | csv | otlp
  bool follow = false;                                 // until the job ends
  int64_t timeout_s = 0;                               // of a follower; 0: none
};

struct CompareArgs {
  std::vector<std::string> runs;  // ids of jobs; files or folders with a metrics.jsonl
  std::string svg;                // file for the curves; empty: none
};

void AddRecords(CLI::App& app, RecordsArgs& args);
// What the parser's own rules cannot say; "" when there is nothing to object.
std::string CheckRecords(const RecordsArgs& args);
void AddCompare(CLI::App& app, CompareArgs& args);

}  // namespace meshwright::cli
