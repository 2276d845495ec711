#include "controller/grpc/trust_service.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "proto/trust.pb.h"

namespace meshwright::controller {
namespace {

int64_t NowS() { return SystemClock().UnixMs() / 1000; }

Status NoAuthority() {
  return FailedPrecondition(
      "this controller cannot sign certificates: it was started without the cluster's authority "
      "(--authority-dir); sign them where that is, by `meshwright cert issue`");
}

Status FillReply(const Result<SignedCertificate>& made, v1::CertificateReply& reply) {
  if (!made.has_value()) return made.error();
  reply.set_cert_pem(made->cert_pem);
  reply.set_ca_pem(made->ca_pem);
  return OkStatus();
}

}  // namespace

TrustServiceImpl::TrustServiceImpl(CallParts parts, Trust* trust) : LateService(std::move(parts)) {
  AddUnary<v1::JoinRequest, v1::CertificateReply>(
      "/meshwright.v1.TrustService/Join", "trust", "join",
      [trust](const v1::JoinRequest& request, v1::CertificateReply& reply, auto answer) {
        if (trust == nullptr) return answer(NoAuthority());
        answer(FillReply(
            trust->Join(request.token(), request.name(), request.request_pem(), NowS()), reply));
      });
  AddUnaryOf<v1::RenewRequest, v1::CertificateReply>(
      "/meshwright.v1.TrustService/Renew", "trust", "renew",
      [trust](const Caller& caller, const v1::RenewRequest& request, v1::CertificateReply& reply,
              auto answer) {
        if (trust == nullptr) return answer(NoAuthority());
        if (!caller.role || caller.name.empty()) {
          return answer(PermissionDenied("only who has a certificate can renew it"));
        }
        answer(FillReply(trust->Renew({*caller.role, caller.name}, request.request_pem(), NowS()),
                         reply));
      });
}

}  // namespace meshwright::controller
