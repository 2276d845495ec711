#include "actor/registry.h"

#include <fmt/format.h>

#include "base/guard.h"
#include "base/text.h"

namespace meshwright::actor {

Status Registry::AddBytes(std::string type, ByteFactory factory) {
  constexpr size_t kMostBytes = 128;
  if (type.empty() || type.size() > kMostBytes) {
    return InvalidArgument(fmt::format(
        "the name of an actor type has {} bytes; 1 to {} are allowed", type.size(), kMostBytes));
  }
  if (factories_.contains(type)) {
    return AlreadyExists(fmt::format("there are two actor types named '{}'; rename one", type));
  }
  factories_.emplace(std::move(type), std::move(factory));
  return OkStatus();
}

Result<std::unique_ptr<Actor<Bytes>>> Registry::Make(const std::string& type,
                                                     std::string_view args) const {
  const auto it = factories_.find(type);
  if (it == factories_.end()) {
    return Fail(NotFound(fmt::format("there is no actor type '{}'; this binary has: {}", type,
                                     types().empty() ? "none" : Join(types(), ", "))));
  }
  return Guarded("making an actor", [&] { return it->second(args); });
}

std::vector<std::string> Registry::types() const {
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

}  // namespace meshwright::actor
