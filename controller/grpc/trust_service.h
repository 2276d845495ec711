// TrustService: certificates for workers that join, and renewed ones.
#pragma once

#include "controller/grpc/late_service.h"
#include "controller/trust.h"

namespace meshwright::controller {

class TrustServiceImpl final : public LateService {
 public:
  // trust: null where the controller has no authority: calls are refused with the command.
  TrustServiceImpl(CallParts parts, Trust* trust);
};

}  // namespace meshwright::controller
