// The worker of this example: takes the flags of `meshwright worker`, is one, and has cart poles.
//
//   meshwright up --worker-binary build/policy_gradient/policy_gradient_worker
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "base/check.h"
#include "cart_pole.h"
#include "turn.h"
#include "worker/main.h"

namespace policy_gradient {
namespace {

using meshwright::Result;
using meshwright::Status;
namespace actor = meshwright::actor;

// One pole. It falls for good until the next reset.
class Environment final : public actor::Actor<Turn> {
 public:
  Status Receive(Turn turn, actor::ReplySlot<Seen> reply) override {
    reply.Complete(Take(turn));
    return {};
  }

 private:
  Result<Seen> Take(const Turn& turn) {
    if (turn.kind == Turn::Kind::kReset) {
      std::mt19937_64 random(static_cast<uint64_t>(turn.number));
      pole_.emplace(random);
    } else if (!pole_) {
      return meshwright::Fail(meshwright::FailedPrecondition(
          "a push before the first reset: this environment is new, or was started again"));
    } else if (turn.number < 0 || turn.number >= CartPole::kActions) {
      return meshwright::Fail(meshwright::InvalidArgument("action " + std::to_string(turn.number) +
                                                          "; there are 0 (left) and 1 (right)"));
    } else if (!pole_->fallen()) {
      pole_->Push(static_cast<int32_t>(turn.number));
    }
    return Seen{pole_->state(), !pole_->fallen()};
  }

  std::optional<CartPole> pole_;
};

Result<std::unique_ptr<actor::Actor<Turn>>> MakeEnvironment(std::string_view) {
  return std::unique_ptr<actor::Actor<Turn>>(std::make_unique<Environment>());
}

}  // namespace
}  // namespace policy_gradient

int main(int argc, char** argv) {
  using policy_gradient::Turn;
  meshwright::actor::Registry registry;
  MW_CHECK(registry
               .Add<Turn>(std::string(policy_gradient::kEnvironment),
                          policy_gradient::MakeEnvironment, policy_gradient::TurnCodec())
               .ok());
  return meshwright::worker::Main(argc, argv, registry);
}
