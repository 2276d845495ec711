// What a job reads: streams of samples, each made of files that workers read in place or fetch.
//
//   DataSpec -> streams -> fields -> slices of files
//
// A stream of tokens has one field, "window": sample n is sequence + 1 tokens in a row, inputs and,
// shifted by one, labels. A stream of records has named fields with rows of any type and shape;
// sample n is row n of each of them. Which file format the bytes came from is settled before: a
// field is an element type, the dims of an item and the slices of files that hold its items, one
// after the other. data/describe.h makes it from files; data/source.h reads it.
//
// A graph reads a field by a feed node whose `source` is "stream/field": the first dim is the
// batch, the others are the item's. "stream" alone is the field of a stream that has one;
// "validation:stream/field" is the part that is never trained on.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/element.h"
#include "ir/graph.h"

namespace meshwright::ir {

// A file, known by content: the client uploads it once, workers fetch it by hash.
struct BlobRef {
  std::string sha256;  // hex; empty: none
  int64_t size_bytes = 0;
  std::string name;  // for people: the path that the user gave
  friend bool operator==(const BlobRef&, const BlobRef&) = default;
};

// A folder below which a worker reads files in place. Jobs know it by its name.
struct DataRoot {
  std::string name;  // the path, where the operator gave no other
  std::string path;  // absolute, on the worker
  friend bool operator==(const DataRoot&, const DataRoot&) = default;
};

// A file that is fetched by its hash or, where `root` is set, read in place.
struct FileRef {
  BlobRef blob;              // of a file in place: size and name only
  std::string root = {};     // name of a root that every worker of the job has
  std::string path = {};     // below it
  std::string sampled = {};  // of a file in place: data/identity.h, so that all see the same bytes
  bool in_place() const { return !root.empty(); }
  bool empty() const { return root.empty() && blob.sha256.empty(); }
  friend bool operator==(const FileRef&, const FileRef&) = default;
};

// Items that follow each other in a file.
struct DataSlice {
  int32_t file = 0;  // of DataStream::files
  int64_t begin_bytes = 0;
  int64_t items = 0;
  friend bool operator==(const DataSlice&, const DataSlice&) = default;
};

struct DataField {
  std::string name;
  Element element = Element::kU8;
  Dims item;                          // dims of one item; {} of tokens and of numbers
  std::vector<DataSlice> slices;      // in order
  std::vector<DataSlice> validation;  // of files of its own; empty: the tail of `slices`
  int64_t item_bytes() const;
  friend bool operator==(const DataField&, const DataField&) = default;
};

// Rows that a host actor makes, in place of files (actor/rows.h). Every worker that reads them has
// one of its own, so its rows must be a function of what it is asked.
struct ActorSource {
  std::string type;  // of the registry of the workers' binary; empty: the stream has files
  std::string args = {};
  int64_t validation_rows = 0;   // sample n to validate with is n modulo these; 0: none
  int64_t deadline_ms = 30'000;  // of a question
  bool empty() const { return type.empty(); }
  friend bool operator==(const ActorSource&, const ActorSource&) = default;
};

// Items of a stream that are a data set of their own.
struct DataPart {
  std::string name;
  int64_t items = 0;  // the parts of a stream are one behind the other and make all of it
  // Of training: its share of the samples (data/mixture.h); all 0: the parts take turns, each as a
  // whole. Of validation: so many samples are read of it, then as many as the next one says.
  int64_t weight = 1;
  friend bool operator==(const DataPart&, const DataPart&) = default;
};

enum class DataKind : uint8_t { kTokens, kRecords };

struct DataStream {
  std::string name = "tokens";
  DataKind kind = DataKind::kTokens;
  std::vector<FileRef> files;
  std::vector<DataField> fields;
  double validation_fraction = 0.05;  // without files of its own: the tail, never trained on
  ActorSource actor = {};             // then there are no files, and fields have no slices
  std::vector<DataPart> parts = {};   // of what is not of `validation`; empty: it is one
  std::vector<DataPart> validation_parts = {};          // of `validation`; empty: it is one
  const DataField* Find(std::string_view field) const;  // or nullptr
  friend bool operator==(const DataStream&, const DataStream&) = default;
};

// The field of a stream of tokens.
inline constexpr std::string_view kWindowField = "window";

struct DataSpec {
  // One file of tokens, the stream "tokens"; unused where there are streams.
  BlobRef blob;
  std::string format =
      "bytes";  // "bytes" (UTF-8 text, token = byte) | "uint16" | "uint32" (little endian tokens)
  double validation_fraction = 0.05;  // the tail of the file, never trained on
  std::vector<DataStream> streams = {};
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

// The streams of a spec; the one file of tokens as a stream too.
// Errors: kInvalidArgument for an unknown format.
Result<std::vector<DataStream>> StreamsOf(const DataSpec& data);

// Checks what the spec says of itself: names, element types, slices inside their files, as many
// rows in every field. Safe on any input. Errors: kInvalidArgument naming stream, field, file.
Status CheckDataSpec(const DataSpec& data);

// "validation:stream/field", taken apart. `field` is empty where the text names none.
struct FeedName {
  std::string_view stream;
  std::string_view field;
  bool validation = false;
};
FeedName ParseFeedName(std::string_view source);
// The same feed of the validation part.
std::string ValidationFeed(std::string_view source);

// Whether a feed node of this source and type can read the data; `sequence` is the job's.
// Errors: kInvalidArgument naming feed, wanted and found type, or the known names.
Status CheckFeed(const std::vector<DataStream>& streams, std::string_view source,
                 const TensorType& type, int64_t sequence);

}  // namespace meshwright::ir
