#include "data/join.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace meshwright::data {
namespace {

Status CheckAlike(const NamedStream& first, const NamedStream& other) {
  const auto alike = [](const ir::DataField& a, const ir::DataField& b) {
    return a.name == b.name && a.element == b.element && a.item == b.item;
  };
  bool same = first.stream.kind == other.stream.kind &&
              first.stream.fields.size() == other.stream.fields.size();
  for (size_t i = 0; same && i < first.stream.fields.size(); ++i) {
    same = alike(first.stream.fields[i], other.stream.fields[i]);
  }
  if (same) return OkStatus();
  return InvalidArgument(
      fmt::format("data set '{}' has other fields than '{}': sets of one job have the same tokens, "
                  "or arrays of the same names, types and shapes",
                  other.name, first.name));
}

int64_t ItemsOf(const ir::DataField& field) {
  int64_t items = 0;
  for (const ir::DataSlice& slice : field.slices) items += slice.items;
  return items;
}

// Files and items of a set, behind those that are there.
void Append(NamedStream set, ir::DataStream& to, bool validation, bool is_part) {
  const auto first_file = static_cast<int32_t>(to.files.size());
  for (ir::FileRef& file : set.stream.files) to.files.push_back(std::move(file));
  for (size_t i = 0; i < to.fields.size(); ++i) {
    for (ir::DataSlice slice : set.stream.fields[i].slices) {
      slice.file += first_file;
      (validation ? to.fields[i].validation : to.fields[i].slices).push_back(slice);
    }
  }
  if (!is_part) return;
  (validation ? to.validation_parts : to.parts)
      .push_back({std::move(set.name), ItemsOf(set.stream.fields[0]), set.weight});
}

}  // namespace

Result<ir::DataStream> JoinStreams(std::vector<NamedStream> training,
                                   std::vector<NamedStream> validation) {
  MW_CHECK(!training.empty()) << "nothing to train on";
  for (const auto* sets : {&training, &validation}) {
    for (const NamedStream& set : *sets) MW_TRY(CheckAlike(training[0], set));
  }
  ir::DataStream joined = training[0].stream;
  joined.files.clear();
  for (ir::DataField& field : joined.fields) {
    field.slices.clear();
    field.validation.clear();
  }
  const bool mixes = training.size() > 1;
  for (NamedStream& set : training) Append(std::move(set), joined, false, mixes);
  const bool several = validation.size() > 1;
  for (NamedStream& set : validation) Append(std::move(set), joined, true, several);
  if (!validation.empty()) joined.validation_fraction = 0;
  return joined;
}

}  // namespace meshwright::data
