//! LTTng names of the runtime's events, by which PerfView identifies them.
//!
//! PerfView infers event, version and layout from the name. New versions only append fields. An
//! event of a version without a name therefore uses the highest version with a name; PerfView does
//! not show its last fields.

use crate::nettrace::EventMetadata;

const RUNTIME_PROVIDER: &str = "Microsoft-Windows-DotNETRuntime";
const PRIVATE_PROVIDER: &str = "Microsoft-Windows-DotNETRuntimePrivate";
const RUNDOWN_PROVIDER: &str = "Microsoft-Windows-DotNETRuntimeRundown";
/// Event that contains the events of all other providers.
pub(super) const EVENT_SOURCE: &str = "DotNETRuntime:EventSource";

/// Event with which a runtime describes itself.
pub(super) const RUNTIME_INFORMATION: &str = "DotNETRuntime:RuntimeInformationStart";

/// Id, name, and the oldest and newest version with a name.
///
/// The name of version 0 has no suffix; others have the suffix `_V` and the version.
type EventName = (u32, &'static str, u32, u32);

#[rustfmt::skip]
const RUNTIME: [EventName; 129] = [
    (1, "GCStart", 0, 2), (2, "GCEnd", 0, 1), (3, "GCRestartEEEnd", 0, 1), (4, "GCHeapStats", 0, 1),
    (5, "GCCreateSegment", 0, 1), (6, "GCFreeSegment", 0, 1), (7, "GCRestartEEBegin", 0, 1),
    (8, "GCSuspendEEEnd", 0, 1), (9, "GCSuspendEEBegin", 0, 1), (10, "GCAllocationTick", 0, 3),
    (11, "GCCreateConcurrentThread", 0, 1), (12, "GCTerminateConcurrentThread", 0, 1), (13, "GCFinalizersEnd", 0, 1),
    (14, "GCFinalizersBegin", 0, 1), (15, "BulkType", 0, 0), (16, "GCBulkRootEdge", 0, 0),
    (17, "GCBulkRootConditionalWeakTableElementEdge", 0, 0), (18, "GCBulkNode", 0, 0), (19, "GCBulkEdge", 0, 0),
    (20, "GCSampledObjectAllocationHigh", 0, 0), (21, "GCBulkSurvivingObjectRanges", 0, 0),
    (22, "GCBulkMovedObjectRanges", 0, 0), (23, "GCGenerationRange", 0, 0), (25, "GCMarkStackRoots", 0, 0),
    (26, "GCMarkFinalizeQueueRoots", 0, 0), (27, "GCMarkHandles", 0, 0), (28, "GCMarkOlderGenerationRoots", 0, 0),
    (29, "FinalizeObject", 0, 0), (30, "SetGCHandle", 0, 0), (31, "DestroyGCHandle", 0, 0),
    (32, "GCSampledObjectAllocationLow", 0, 0), (33, "PinObjectAtGCTime", 0, 0), (35, "GCTriggered", 0, 0),
    (36, "GCBulkRootCCW", 0, 0), (37, "GCBulkRCW", 0, 0), (38, "GCBulkRootStaticVar", 0, 0),
    (40, "WorkerThreadCreate", 0, 0), (41, "WorkerThreadTerminate", 0, 0), (42, "WorkerThreadRetire", 0, 0),
    (43, "WorkerThreadUnretire", 0, 0), (44, "IOThreadCreate", 0, 1), (45, "IOThreadTerminate", 0, 1),
    (46, "IOThreadRetire", 0, 1), (47, "IOThreadUnretire", 0, 1), (48, "ThreadpoolSuspensionSuspendThread", 0, 0),
    (49, "ThreadpoolSuspensionResumeThread", 0, 0), (50, "ThreadPoolWorkerThreadStart", 0, 0),
    (51, "ThreadPoolWorkerThreadStop", 0, 0), (52, "ThreadPoolWorkerThreadRetirementStart", 0, 0),
    (53, "ThreadPoolWorkerThreadRetirementStop", 0, 0), (54, "ThreadPoolWorkerThreadAdjustmentSample", 0, 0),
    (55, "ThreadPoolWorkerThreadAdjustmentAdjustment", 0, 0), (56, "ThreadPoolWorkerThreadAdjustmentStats", 0, 0),
    (57, "ThreadPoolWorkerThreadWait", 0, 0), (60, "ThreadPoolWorkingThreadCount", 0, 0),
    (61, "ThreadPoolEnqueue", 0, 0), (62, "ThreadPoolDequeue", 0, 0), (63, "ThreadPoolIOEnqueue", 0, 0),
    (64, "ThreadPoolIODequeue", 0, 0), (65, "ThreadPoolIOPack", 0, 0), (70, "ThreadCreating", 0, 0),
    (71, "ThreadRunning", 0, 0), (80, "ExceptionThrown", 0, 1), (81, "ContentionStart", 1, 2),
    (82, "CLRStackWalk", 0, 0), (83, "AppDomainMemAllocated", 0, 0), (84, "AppDomainMemSurvived", 0, 0),
    (85, "ThreadCreated", 0, 0), (86, "ThreadTerminated", 0, 0), (87, "ThreadDomainEnter", 0, 0),
    (88, "ILStubGenerated", 0, 0), (89, "ILStubCacheHit", 0, 0), (90, "LockCreated", 0, 0),
    (91, "ContentionStop", 0, 1), (135, "DCStartCompleteV2", 0, 0), (136, "DCEndCompleteV2", 0, 0),
    (137, "MethodDCStartV2", 0, 0), (138, "MethodDCEndV2", 0, 0), (139, "MethodDCStartVerboseV2", 0, 0),
    (140, "MethodDCEndVerboseV2", 0, 0), (141, "MethodLoad", 0, 2), (142, "MethodUnload", 0, 2),
    (143, "MethodLoadVerbose", 0, 2), (144, "MethodUnloadVerbose", 0, 2), (145, "MethodJittingStarted", 0, 1),
    (149, "ModuleDCStartV2", 0, 0), (150, "ModuleDCEndV2", 0, 0), (151, "DomainModuleLoad", 0, 1),
    (152, "ModuleLoad", 0, 2), (153, "ModuleUnload", 0, 2), (154, "AssemblyLoad", 0, 1),
    (155, "AssemblyUnload", 0, 1), (156, "AppDomainLoad", 0, 1), (157, "AppDomainUnload", 0, 1),
    (158, "ModuleRangeLoad", 0, 0), (181, "StrongNameVerificationStart", 0, 1),
    (182, "StrongNameVerificationStop", 0, 1), (183, "AuthenticodeVerificationStart", 0, 1),
    (184, "AuthenticodeVerificationStop", 0, 1), (185, "MethodJitInliningSucceeded", 0, 0),
    (186, "MethodJitInliningFailed", 0, 0), (187, "RuntimeInformationStart", 0, 0),
    (188, "MethodJitTailCallSucceeded", 0, 0), (189, "MethodJitTailCallFailed", 0, 0),
    (190, "MethodILToNativeMap", 0, 0), (200, "IncreaseMemoryPressure", 0, 0), (201, "DecreaseMemoryPressure", 0, 0),
    (202, "GCMarkWithType", 0, 0), (203, "GCJoin", 2, 2), (204, "GCPerHeapHistory", 3, 3),
    (205, "GCGlobalHeapHistory", 2, 2), (240, "DebugIPCEventStart", 0, 0), (241, "DebugIPCEventEnd", 0, 0),
    (242, "DebugExceptionProcessingStart", 0, 0), (243, "DebugExceptionProcessingEnd", 0, 0),
    (250, "ExceptionCatchStart", 0, 0), (251, "ExceptionCatchStop", 0, 0), (252, "ExceptionFinallyStart", 0, 0),
    (253, "ExceptionFinallyStop", 0, 0), (254, "ExceptionFilterStart", 0, 0), (255, "ExceptionFilterStop", 0, 0),
    (256, "ExceptionThrownStop", 0, 0), (260, "CodeSymbols", 0, 0), (270, "EventSource", 0, 0),
    (280, "TieredCompilationSettings", 0, 0), (281, "TieredCompilationPause", 0, 0),
    (282, "TieredCompilationResume", 0, 0), (283, "TieredCompilationBackgroundJitStart", 0, 0),
    (284, "TieredCompilationBackgroundJitStop", 0, 0),
];

#[rustfmt::skip]
const PRIVATE: [EventName; 126] = [
    (1, "GCDecision", 0, 1), (2, "GCSettings", 0, 1), (3, "GCOptimized", 0, 1), (4, "GCPerHeapHistory", 1, 1),
    (5, "GCGlobalHeapHistory", 0, 1), (6, "GCJoin", 0, 1), (7, "PrvGCMarkStackRoots", 0, 1),
    (8, "PrvGCMarkFinalizeQueueRoots", 0, 1), (9, "PrvGCMarkHandles", 0, 1), (10, "PrvGCMarkCards", 0, 1),
    (11, "BGCBegin", 0, 0), (12, "BGC1stNonConEnd", 0, 0), (13, "BGC1stConEnd", 0, 0),
    (14, "BGC2ndNonConBegin", 0, 0), (15, "BGC2ndNonConEnd", 0, 0), (16, "BGC2ndConBegin", 0, 0),
    (17, "BGC2ndConEnd", 0, 0), (18, "BGCPlanEnd", 0, 0), (19, "BGCSweepEnd", 0, 0), (20, "BGCDrainMark", 0, 0),
    (21, "BGCRevisit", 0, 0), (22, "BGCOverflow", 0, 0), (23, "BGCAllocWaitBegin", 0, 0),
    (24, "BGCAllocWaitEnd", 0, 0), (25, "GCFullNotify", 0, 1), (80, "EEStartupStart", 0, 1),
    (81, "EEStartupEnd", 0, 1), (82, "EEConfigSetup", 0, 1), (83, "EEConfigSetupEnd", 0, 1), (84, "LdSysBases", 0, 1),
    (85, "LdSysBasesEnd", 0, 1), (86, "ExecExe", 0, 1), (87, "ExecExeEnd", 0, 1), (88, "Main", 0, 1),
    (89, "MainEnd", 0, 1), (90, "ApplyPolicyStart", 0, 1), (91, "ApplyPolicyEnd", 0, 1), (92, "LdLibShFolder", 0, 1),
    (93, "LdLibShFolderEnd", 0, 1), (94, "PrestubWorker", 0, 1), (95, "PrestubWorkerEnd", 0, 1),
    (96, "GetInstallationStart", 0, 1), (97, "GetInstallationEnd", 0, 1), (98, "OpenHModule", 0, 1),
    (99, "OpenHModuleEnd", 0, 1), (100, "ExplicitBindStart", 0, 1), (101, "ExplicitBindEnd", 0, 1),
    (102, "ParseXml", 0, 1), (103, "ParseXmlEnd", 0, 1), (104, "InitDefaultDomain", 0, 1),
    (105, "InitDefaultDomainEnd", 0, 1), (106, "InitSecurity", 0, 1), (107, "InitSecurityEnd", 0, 1),
    (108, "AllowBindingRedirs", 0, 1), (109, "AllowBindingRedirsEnd", 0, 1), (110, "EEConfigSync", 0, 1),
    (111, "EEConfigSyncEnd", 0, 1), (112, "FusionBinding", 0, 1), (113, "FusionBindingEnd", 0, 1),
    (114, "LoaderCatchCall", 0, 1), (115, "LoaderCatchCallEnd", 0, 1), (116, "FusionInit", 0, 1),
    (117, "FusionInitEnd", 0, 1), (118, "FusionAppCtx", 0, 1), (119, "FusionAppCtxEnd", 0, 1),
    (120, "Fusion2EE", 0, 1), (121, "Fusion2EEEnd", 0, 1), (122, "SecurityCatchCall", 0, 1),
    (123, "SecurityCatchCallEnd", 0, 1), (151, "CLRStackWalkPrivate", 0, 0), (158, "ModuleRangeLoadPrivate", 0, 0),
    (159, "BindingPolicyPhaseStart", 0, 0), (160, "BindingPolicyPhaseEnd", 0, 0),
    (161, "BindingNgenPhaseStart", 0, 0), (162, "BindingNgenPhaseEnd", 0, 0),
    (163, "BindingLookupAndProbingPhaseStart", 0, 0), (164, "BindingLookupAndProbingPhaseEnd", 0, 0),
    (165, "LoaderPhaseStart", 0, 0), (166, "LoaderPhaseEnd", 0, 0), (167, "BindingPhaseStart", 0, 0),
    (168, "BindingPhaseEnd", 0, 0), (169, "BindingDownloadPhaseStart", 0, 0), (170, "BindingDownloadPhaseEnd", 0, 0),
    (171, "LoaderAssemblyInitPhaseStart", 0, 0), (172, "LoaderAssemblyInitPhaseEnd", 0, 0),
    (173, "LoaderMappingPhaseStart", 0, 0), (174, "LoaderMappingPhaseEnd", 0, 0),
    (175, "LoaderDeliverEventsPhaseStart", 0, 0), (176, "LoaderDeliverEventsPhaseEnd", 0, 0),
    (177, "EvidenceGenerated", 0, 0), (178, "ModuleTransparencyComputationStart", 0, 0),
    (179, "ModuleTransparencyComputationEnd", 0, 0), (180, "TypeTransparencyComputationStart", 0, 0),
    (181, "TypeTransparencyComputationEnd", 0, 0), (182, "MethodTransparencyComputationStart", 0, 0),
    (183, "MethodTransparencyComputationEnd", 0, 0), (184, "FieldTransparencyComputationStart", 0, 0),
    (185, "FieldTransparencyComputationEnd", 0, 0), (186, "TokenTransparencyComputationStart", 0, 0),
    (187, "TokenTransparencyComputationEnd", 0, 0), (188, "NgenBindEvent", 0, 0), (191, "FailFast", 0, 0),
    (192, "PrvFinalizeObject", 0, 0), (193, "CCWRefCountChange", 0, 0), (194, "PrvSetGCHandle", 0, 0),
    (195, "PrvDestroyGCHandle", 0, 0), (196, "FusionMessageEvent", 0, 0), (197, "FusionErrorCodeEvent", 0, 0),
    (199, "PinPlugAtGCTime", 0, 0), (201, "MulticoreJit", 0, 0), (202, "MulticoreJitMethodCodeReturned", 0, 0),
    (310, "AllocRequest", 0, 0), (400, "IInspectableRuntimeClassName", 0, 0), (401, "WinRTUnbox", 0, 0),
    (402, "CreateRCW", 0, 0), (403, "RCWVariance", 0, 0), (404, "RCWIEnumerableCasting", 0, 0),
    (405, "CreateCCW", 0, 0), (406, "CCWVariance", 0, 0), (407, "ObjectVariantMarshallingToNative", 0, 0),
    (408, "GetTypeFromGUID", 0, 0), (409, "GetTypeFromProgID", 0, 0), (410, "ConvertToCallbackEtw", 0, 0),
    (411, "BeginCreateManagedReference", 0, 0), (412, "EndCreateManagedReference", 0, 0),
    (413, "ObjectVariantMarshallingToManaged", 0, 0),
];

/// Returns the name of an event kind, or `None` if PerfView does not support it.
pub(super) fn name(kind: &EventMetadata) -> Option<String> {
    let (prefix, table) = match kind.provider.as_str() {
        RUNTIME_PROVIDER => ("DotNETRuntime", &RUNTIME[..]),
        PRIVATE_PROVIDER => ("DotNETRuntimePrivate", &PRIVATE[..]),
        RUNDOWN_PROVIDER => return rundown_name(kind.id).map(str::to_owned),
        // Events without a name have no fields.
        _ => return (!kind.name.is_empty()).then(|| EVENT_SOURCE.to_owned()),
    };
    let row = table.binary_search_by_key(&kind.id, |row| row.0).ok()?;
    let &(_, base, oldest, newest) = table.get(row)?;
    let version = kind.version.min(newest);
    (version >= oldest).then(|| match version {
        0 => format!("{prefix}:{base}"),
        version => format!("{prefix}:{base}_V{version}"),
    })
}

/// Returns the name of a rundown event, which describes state from before the session.
///
/// The layouts are those of the corresponding runtime events.
fn rundown_name(id: u32) -> Option<&'static str> {
    match id {
        154 => Some("DotNETRuntime:ModuleLoad_V2"),
        187 => Some(RUNTIME_INFORMATION),
        280 => Some("DotNETRuntimeRundown:TieredCompilationSettingsDCStart"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_name(provider: &str, id: u32, version: u32) -> Option<String> {
        name(&EventMetadata {
            provider: provider.into(),
            id,
            version,
            ..EventMetadata::default()
        })
    }

    #[test]
    fn version_without_name_uses_highest_named_version() {
        let runtime = |id, version| event_name(RUNTIME_PROVIDER, id, version);
        assert_eq!(runtime(1, 2).as_deref(), Some("DotNETRuntime:GCStart_V2"));
        assert_eq!(
            runtime(4, 2).as_deref(),
            Some("DotNETRuntime:GCHeapStats_V1")
        );
        assert_eq!(
            runtime(10, 4).as_deref(),
            Some("DotNETRuntime:GCAllocationTick_V3")
        );
        assert_eq!(
            runtime(205, 4).as_deref(),
            Some("DotNETRuntime:GCGlobalHeapHistory_V2")
        );
        assert_eq!(
            runtime(187, 0).as_deref(),
            Some("DotNETRuntime:RuntimeInformationStart")
        );
        assert_eq!(runtime(301, 0), None);
        // The layout of the named version does not start with the layout of this version.
        assert_eq!(runtime(204, 2), None);
        let private = event_name(PRIVATE_PROVIDER, 1, 1);
        assert!(private.is_some_and(|name| name.starts_with("DotNETRuntimePrivate:")));
    }

    #[test]
    fn tables_are_sorted() {
        assert!(RUNTIME.is_sorted_by_key(|row| row.0));
        assert!(PRIVATE.is_sorted_by_key(|row| row.0));
    }
}
