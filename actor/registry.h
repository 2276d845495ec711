// Registry: the types of actors that a binary has, by name. No code travels: another place asks for
// a type by its name and sends the arguments as bytes, and both ends agree on what bytes mean by
// linking the same codec.
//
//   Registry registry;
//   MW_CHECK(registry.Add<Move>("grid-world", MakeGridWorld, MoveCodec()).ok());
//   return worker::Main(argc, argv, registry);
//
// Thread rule: filled by one thread, read by any afterwards.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actor/actor.h"

namespace meshwright::actor {

using ByteFactory = std::function<Result<std::unique_ptr<Actor<Bytes>>>(std::string_view args)>;

// An actor of typed messages as one of bytes. A message that cannot be decoded is answered with the
// decoder's error and is no failure of the actor.
template <class Message>
class DecodingActor final : public Actor<Bytes> {
 public:
  DecodingActor(std::unique_ptr<Actor<Message>> inner, MessageCodec<Message> codec)
      : inner_(std::move(inner)), codec_(std::move(codec)) {}

  Status Receive(Bytes bytes, ReplySlot<Bytes> reply) override {
    Result<Message> message = codec_.message.decode(bytes.data);
    if (!message.has_value()) {
      reply.Complete(Fail(message.error()));
      return OkStatus();
    }
    if (!reply.wanted()) return inner_->Receive(std::move(*message), {});
    auto slot = std::make_shared<ReplySlot<Bytes>>(std::move(reply));
    // The encoder is copied: a slot may outlive the actor.
    return inner_->Receive(
        std::move(*message),
        ReplySlot<ReplyOf<Message>>([slot, encode = codec_.reply.encode](auto answer) {
          if (!answer.has_value()) return slot->Complete(Fail(answer.error()));
          slot->Complete(Bytes{encode(*answer)});
        }));
  }

 private:
  const std::unique_ptr<Actor<Message>> inner_;
  const MessageCodec<Message> codec_;
};

class Registry {
 public:
  // Errors: kAlreadyExists; kInvalidArgument for an empty name or one of more than 128 bytes.
  Status AddBytes(std::string type, ByteFactory factory);
  template <class Message>
  Status Add(std::string type,
             std::function<Result<std::unique_ptr<Actor<Message>>>(std::string_view args)> factory,
             MessageCodec<Message> codec) {
    return AddBytes(std::move(type),
                    [factory = std::move(factory), codec = std::move(codec)](
                        std::string_view args) -> Result<std::unique_ptr<Actor<Bytes>>> {
                      MW_ASSIGN_OR_RETURN(std::unique_ptr<Actor<Message>> made, factory(args));
                      return std::unique_ptr<Actor<Bytes>>(
                          std::make_unique<DecodingActor<Message>>(std::move(made), codec));
                    });
  }

  // Errors: kNotFound naming the types that there are; the factory's.
  Result<std::unique_ptr<Actor<Bytes>>> Make(const std::string& type, std::string_view args) const;
  std::vector<std::string> types() const;

 private:
  std::map<std::string, ByteFactory> factories_;
};

}  // namespace meshwright::actor
