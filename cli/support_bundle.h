// What others need to find out what went wrong, in one archive and without secrets.
//
// Every text passes the redactor (cli/redact.h) on its way in: there is no other way. A part that
// could not be had is named with its reason, and the rest is there all the same. The first file is
// the manifest: what is in it, with sizes and hashes, what is missing, how much was left out.
//
// Thread rule: a value of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/redact.h"
#include "formats/tar.h"

namespace meshwright::cli {

struct BundleFacts {
  std::string name;     // the folder in the archive
  std::string version;  // of this program
  std::string address;  // of the controller that was asked
  int64_t unix_ms = 0;
};

struct MissingPart {
  std::string name;
  std::string why;
};

class SupportBundle {
 public:
  // Of a part; of a longer one the end is kept, which is what happened last.
  static constexpr size_t kMostBytes = size_t{4} << 20;

  SupportBundle(BundleFacts facts, Redactor redactor)
      : facts_(std::move(facts)), redactor_(std::move(redactor)) {}

  // `name`: "jobs/12/events.log". What is empty is not there, and not missing.
  void Add(const std::string& name, const Result<std::string>& text);

  // The archive; without anything added it has the manifest alone.
  std::string Tar() const;
  size_t files() const { return files_.size(); }
  size_t left_out() const { return left_out_; }
  const std::vector<MissingPart>& missing() const { return missing_; }

 private:
  struct Part {
    formats::TarFile file;
    size_t left_out = 0;
    size_t cut_bytes = 0;  // of its beginning
  };
  std::string Manifest() const;

  const BundleFacts facts_;
  const Redactor redactor_;
  std::vector<Part> files_;
  std::vector<MissingPart> missing_;
  size_t left_out_ = 0;
};

}  // namespace meshwright::cli
