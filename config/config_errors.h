// What is wrong with a job file, all of it at once: each error with the key that it is about, its
// place and what to do.
//
//   ConfigErrors errors;
//   const JobConfig config = ParseJobConfig(source, errors);
//   for (const ConfigError& error : errors.all()) fmt::print("{}\n", error.message);
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace meshwright::config {

struct JobConfig;

struct ConfigError {
  std::string key;      // "training.steps"; empty where it is not about one
  std::string place;    // "job.toml:12:9", "--set training.steps=x"; empty: a default, or no key
  int64_t line = 0;     // in the job file, from 1; 0: elsewhere
  int64_t column = 0;   // the same
  std::string message;  // all of it, as Status::message() says it
  std::string hint;     // the part of the message that says what to do; may be empty
};

// The part of a message behind what is wrong: "it must be at least 1" of "training.steps is 0; it
// must be at least 1", "did you mean 'steps'?" of "unknown key 'stepz' (did you mean 'steps'?)".
std::string HintIn(const std::string& message);

// An error that is about the first key that its message names. Its place is where that key got its
// value.
ConfigError ExplainError(const Status& status, const JobConfig& config);

// In the order in which they were found.
class ConfigErrors {
 public:
  // OK adds nothing. `place` and `key` as in ConfigError.
  void Add(const Status& status, std::string key, std::string place);
  void Add(const Status& status, const JobConfig& config);
  bool empty() const { return all_.empty(); }
  const std::vector<ConfigError>& all() const { return all_; }
  // What who asks for one alone is told; OK when there is none.
  const Status& first() const { return first_; }
  // All of them in one, a line each, in the order of the file; OK when there is none, the first
  // where it is the only one.
  Status Together() const;

 private:
  std::vector<ConfigError> all_;
  Status first_;
};

}  // namespace meshwright::config
