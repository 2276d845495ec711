#include "environments.h"

#include <future>
#include <string>
#include <utility>

namespace policy_gradient {

using meshwright::Result;
using meshwright::Status;
namespace client = meshwright::client;

Result<Environments> Environments::Spawn(client::Session& session, int64_t count) {
  std::vector<client::ActorRef> actors;
  for (int64_t i = 0; i < count; ++i) {
    MW_ASSIGN_OR_RETURN(client::ActorRef actor, session.Spawn(std::string(kEnvironment)));
    actors.push_back(std::move(actor));
  }
  return Environments(session, std::move(actors));
}

Status Environments::Reset(uint64_t seed) {
  Turns turns;
  for (size_t i = 0; i < actors_.size(); ++i) {
    const uint64_t of_one = seed * actors_.size() + i;
    turns.push_back({i, {Turn::Kind::kReset, static_cast<int64_t>(of_one)}});
  }
  return Take(turns);
}

Status Environments::Push(const std::vector<int32_t>& actions) {
  Turns turns;
  for (size_t i = 0; i < actors_.size(); ++i) {
    if (seen_[i].stands) turns.push_back({i, {Turn::Kind::kPush, actions.at(i)}});
  }
  return Take(turns);
}

Status Environments::Take(const Turns& turns) {
  static const auto codec = TurnCodec();
  std::vector<std::future<Result<std::string>>> answers;
  for (const auto& [i, turn] : turns) {
    answers.push_back(session_->Ask(actors_[i], codec.message.encode(turn)));
  }
  for (size_t at = 0; at < turns.size(); ++at) {
    MW_ASSIGN_OR_RETURN(const std::string bytes, answers[at].get());
    MW_ASSIGN_OR_RETURN(seen_[turns[at].first], codec.reply.decode(bytes));
  }
  return {};
}

}  // namespace policy_gradient
