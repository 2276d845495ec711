#include "worker/step_instruction.h"

#include "base/check.h"

namespace meshwright::worker {

Status RunMessage(const StepInstruction& message, const ops::RunContext& context,
                  InstructionCounter& counter) {
  MW_CHECK(IsMessage(message.op) && message.channel != nullptr) << "an instruction sends nothing";
  const TileCopy& tile = message.tile;
  const bool sends = message.op == ir::Opcode::kSend;
  if (sends && !tile.contiguous()) {
    MW_TRY(tile.Pack(message.tensor, message.message, context.team));
  }
  counter.Meet(nullptr);
  MW_TRY(sends ? message.channel->Send(message.message, tile.bytes())
               : message.channel->Receive(message.message, tile.bytes()));
  counter.Part(nullptr);
  if (sends || tile.contiguous()) return OkStatus();
  return tile.Unpack(message.message, message.tensor, context.team);
}

}  // namespace meshwright::worker
