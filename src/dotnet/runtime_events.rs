//! Names and fields of the runtime's own events, which it does not state in its streams (`ClrEtwAll.man` in dotnet/runtime).
//!
//! A later version of an event has what the earlier had, and more behind it: one list is good for all.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::code_event::{RUNDOWN, RUNTIME};
use super::nettrace::{EventKind, Field, FieldType, Value};
use super::profile::PRIVATE;

/// A line an event: provider, id, name, fields as `Name:type`. Providers: r runtime, d rundown, p private. Types:
/// u with its bits, f64, guid, z for UTF-16 up to a NUL. `ClrInstanceID` is `C`. Lists of records at the end are left out.
const EVENTS: &str = "\
r 1 GCStart Count:u32 Depth:u32 Reason:u32 Type:u32 C ClientSequenceNumber:u64
r 2 GCEnd Count:u32 Depth:u32 C
r 3 GCRestartEEEnd C
r 4 GCHeapStats GenerationSize0:u64 TotalPromotedSize0:u64 GenerationSize1:u64 TotalPromotedSize1:u64 GenerationSize2:u64 TotalPromotedSize2:u64 GenerationSize3:u64 TotalPromotedSize3:u64 FinalizationPromotedSize:u64 FinalizationPromotedCount:u64 PinnedObjectCount:u32 SinkBlockCount:u32 GCHandleCount:u32 C GenerationSize4:u64 TotalPromotedSize4:u64
r 5 GCCreateSegment Address:u64 Size:u64 Type:u32 C
r 6 GCFreeSegment Address:u64 C
r 7 GCRestartEEBegin C
r 8 GCSuspendEEEnd C
r 9 GCSuspendEEBegin Reason:u32 Count:u32 C
r 10 GCAllocationTick AllocationAmount:u32 AllocationKind:u32 C AllocationAmount64:u64 TypeID:u64 TypeName:z HeapIndex:u32 Address:u64 ObjectSize:u64
r 11 GCCreateConcurrentThread C
r 12 GCTerminateConcurrentThread C
r 13 GCFinalizersEnd Count:u32 C
r 14 GCFinalizersBegin C
r 15 BulkType Count:u32 C
r 16 GCBulkRootEdge Index:u32 Count:u32 C
r 17 GCBulkRootConditionalWeakTableElementEdge Index:u32 Count:u32 C
r 18 GCBulkNode Index:u32 Count:u32 C
r 19 GCBulkEdge Index:u32 Count:u32 C
r 20 GCSampledObjectAllocationHigh Address:u64 TypeID:u64 ObjectCountForTypeSample:u32 TotalSizeForTypeSample:u64 C
r 21 GCBulkSurvivingObjectRanges Index:u32 Count:u32 C
r 22 GCBulkMovedObjectRanges Index:u32 Count:u32 C
r 23 GCGenerationRange Generation:u8 RangeStart:u64 RangeUsedLength:u64 RangeReservedLength:u64 C
r 29 FinalizeObject TypeID:u64 ObjectID:u64 C
r 30 SetGCHandle HandleID:u64 ObjectID:u64 Kind:u32 Generation:u32 AppDomainID:u64 C
r 31 DestroyGCHandle HandleID:u64 C
r 32 GCSampledObjectAllocationLow Address:u64 TypeID:u64 ObjectCountForTypeSample:u32 TotalSizeForTypeSample:u64 C
r 33 PinObjectAtGCTime HandleID:u64 ObjectID:u64 ObjectSize:u64 TypeName:z C
r 35 GCTriggered Reason:u32 C
r 38 GCBulkRootStaticVar Count:u32 AppDomainID:u64 C
r 39 GCDynamicEvent Name:z DataSize:u32
r 40 WorkerThreadCreate WorkerThreadCount:u32 RetiredWorkerThreads:u32
r 41 WorkerThreadTerminate WorkerThreadCount:u32 RetiredWorkerThreads:u32
r 44 IOThreadCreate IOThreadCount:u32 RetiredIOThreads:u32 C
r 45 IOThreadTerminate IOThreadCount:u32 RetiredIOThreads:u32 C
r 46 IOThreadRetire IOThreadCount:u32 RetiredIOThreads:u32 C
r 47 IOThreadUnretire IOThreadCount:u32 RetiredIOThreads:u32 C
r 50 ThreadPoolWorkerThreadStart ActiveWorkerThreadCount:u32 RetiredWorkerThreadCount:u32 C
r 51 ThreadPoolWorkerThreadStop ActiveWorkerThreadCount:u32 RetiredWorkerThreadCount:u32 C
r 52 ThreadPoolWorkerThreadRetirementStart ActiveWorkerThreadCount:u32 RetiredWorkerThreadCount:u32 C
r 53 ThreadPoolWorkerThreadRetirementStop ActiveWorkerThreadCount:u32 RetiredWorkerThreadCount:u32 C
r 54 ThreadPoolWorkerThreadAdjustmentSample Throughput:f64 C
r 55 ThreadPoolWorkerThreadAdjustmentAdjustment AverageThroughput:f64 NewWorkerThreadCount:u32 Reason:u32 C
r 56 ThreadPoolWorkerThreadAdjustmentStats Duration:f64 Throughput:f64 ThreadWave:f64 ThroughputWave:f64 ThroughputErrorEstimate:f64 AverageThroughputErrorEstimate:f64 ThroughputRatio:f64 Confidence:f64 NewControlSetting:f64 NewThreadWaveMagnitude:u16 C
r 57 ThreadPoolWorkerThreadWait ActiveWorkerThreadCount:u32 RetiredWorkerThreadCount:u32 C
r 58 YieldProcessorMeasurement C NsPerYield:f64 EstablishedNsPerYield:f64
r 59 ThreadPoolMinMaxThreads MinWorkerThreads:u16 MaxWorkerThreads:u16 MinIOCompletionThreads:u16 MaxIOCompletionThreads:u16 C
r 60 ThreadPoolWorkingThreadCount Count:u32 C
r 61 ThreadPoolEnqueue WorkID:u64 C
r 62 ThreadPoolDequeue WorkID:u64 C
r 63 ThreadPoolIOEnqueue NativeOverlapped:u64 Overlapped:u64 MultiDequeues:u32 C
r 64 ThreadPoolIODequeue NativeOverlapped:u64 Overlapped:u64 C
r 65 ThreadPoolIOPack NativeOverlapped:u64 Overlapped:u64 C
r 70 ThreadCreating ID:u64 C
r 71 ThreadRunning ID:u64 C
r 72 MethodDetails MethodID:u64 TypeID:u64 MethodToken:u32 TypeParameterCount:u32 LoaderModuleID:u64
r 73 TypeLoadStart TypeLoadStartID:u32 C
r 74 TypeLoadStop TypeLoadStartID:u32 C LoadLevel:u16 TypeID:u64 TypeName:z
r 80 ExceptionThrown ExceptionType:z ExceptionMessage:z ExceptionEIP:u64 ExceptionHRESULT:u32 ExceptionFlags:u16 C
r 81 ContentionStart ContentionFlags:u8 C LockID:u64 AssociatedObjectID:u64 LockOwnerThreadID:u64
r 85 ThreadCreated ManagedThreadID:u64 AppDomainID:u64 Flags:u32 ManagedThreadIndex:u32 OSThreadID:u32 C
r 86 ThreadTerminated ManagedThreadID:u64 AppDomainID:u64 C
r 87 ThreadDomainEnter ManagedThreadID:u64 AppDomainID:u64 C
r 88 ILStubGenerated C ModuleID:u64 StubMethodID:u64 StubFlags:u32 ManagedInteropMethodToken:u32 ManagedInteropMethodNamespace:z ManagedInteropMethodName:z ManagedInteropMethodSignature:z NativeMethodSignature:z StubMethodSignature:z StubMethodILCode:z
r 90 ContentionLockCreated LockID:u64 AssociatedObjectID:u64 C
r 91 ContentionStop ContentionFlags:u8 C DurationNs:f64
r 135 DCStartComplete C
r 136 DCEndComplete C
r 141 MethodLoad MethodID:u64 ModuleID:u64 MethodStartAddress:u64 MethodSize:u32 MethodToken:u32 MethodFlags:u32 C ReJITID:u64
r 142 MethodUnload MethodID:u64 ModuleID:u64 MethodStartAddress:u64 MethodSize:u32 MethodToken:u32 MethodFlags:u32 C ReJITID:u64
r 143 MethodLoadVerbose MethodID:u64 ModuleID:u64 MethodStartAddress:u64 MethodSize:u32 MethodToken:u32 MethodFlags:u32 MethodNamespace:z MethodName:z MethodSignature:z C ReJITID:u64
r 144 MethodUnloadVerbose MethodID:u64 ModuleID:u64 MethodStartAddress:u64 MethodSize:u32 MethodToken:u32 MethodFlags:u32 MethodNamespace:z MethodName:z MethodSignature:z C ReJITID:u64
r 145 MethodJittingStarted MethodID:u64 ModuleID:u64 MethodToken:u32 MethodILSize:u32 MethodNamespace:z MethodName:z MethodSignature:z C
r 146 MethodJitMemoryAllocatedForCode MethodID:u64 ModuleID:u64 JitHotCodeRequestSize:u64 JitRODataRequestSize:u64 AllocatedSizeForJitCode:u64 JitAllocFlag:u32 C
r 151 DomainModuleLoad ModuleID:u64 AssemblyID:u64 AppDomainID:u64 ModuleFlags:u32 Reserved1:u32 ModuleILPath:z ModuleNativePath:z C
r 152 ModuleLoad ModuleID:u64 AssemblyID:u64 ModuleFlags:u32 Reserved1:u32 ModuleILPath:z ModuleNativePath:z C ManagedPdbSignature:guid ManagedPdbAge:u32 ManagedPdbBuildPath:z NativePdbSignature:guid NativePdbAge:u32 NativePdbBuildPath:z
r 153 ModuleUnload ModuleID:u64 AssemblyID:u64 ModuleFlags:u32 Reserved1:u32 ModuleILPath:z ModuleNativePath:z C
r 154 AssemblyLoad AssemblyID:u64 AppDomainID:u64 BindingID:u64 AssemblyFlags:u32 FullyQualifiedAssemblyName:z C
r 155 AssemblyUnload AssemblyID:u64 AppDomainID:u64 BindingID:u64 AssemblyFlags:u32 FullyQualifiedAssemblyName:z C
r 156 AppDomainLoad AppDomainID:u64 AppDomainFlags:u32 AppDomainName:z AppDomainIndex:u32 C
r 157 AppDomainUnload AppDomainID:u64 AppDomainFlags:u32 AppDomainName:z AppDomainIndex:u32 C
r 159 R2RGetEntryPoint MethodID:u64 MethodNamespace:z MethodName:z MethodSignature:z EntryPoint:u64 C
r 160 R2RGetEntryPointStart MethodID:u64 C
r 185 MethodJitInliningSucceeded MethodBeingCompiledNamespace:z MethodBeingCompiledName:z MethodBeingCompiledNameSignature:z InlinerNamespace:z InlinerName:z InlinerNameSignature:z InlineeNamespace:z InlineeName:z InlineeNameSignature:z C
r 187 RuntimeInformationStart C Sku:u16 BclMajorVersion:u16 BclMinorVersion:u16 BclBuildNumber:u16 BclQfeNumber:u16 VMMajorVersion:u16 VMMinorVersion:u16 VMBuildNumber:u16 VMQfeNumber:u16 StartupFlags:u32 StartupMode:u8 CommandLine:z ComObjectGuid:guid RuntimeDllPath:z
r 190 MethodILToNativeMap MethodID:u64 ReJITID:u64 MethodExtent:u8 CountOfMapEntries:u16
r 192 MethodJitInliningFailed MethodBeingCompiledNamespace:z MethodBeingCompiledName:z MethodBeingCompiledNameSignature:z InlinerNamespace:z InlinerName:z InlinerNameSignature:z InlineeNamespace:z InlineeName:z InlineeNameSignature:z FailAlways:u32 FailReason:z C
r 200 IncreaseMemoryPressure BytesAllocated:u64 C
r 201 DecreaseMemoryPressure BytesFreed:u64 C
r 202 GCMarkWithType HeapNum:u32 C Type:u32 Promoted:u64
r 203 GCJoin Heap:u32 JoinTime:u32 JoinType:u32 C JoinID:u32
r 204 GCPerHeapHistory C FreeListAllocated:u64 FreeListRejected:u64 EndOfSegAllocated:u64 CondemnedAllocated:u64 PinnedAllocated:u64 PinnedAllocatedAdvance:u64 RunningFreeListEfficiency:u32 CondemnReasons0:u32 CondemnReasons1:u32 CompactMechanisms:u32 ExpandMechanisms:u32 HeapIndex:u32 ExtraGen0Commit:u64 Count:u32
r 205 GCGlobalHeapHistory FinalYoungestDesired:u64 NumHeaps:u32 CondemnedGeneration:u32 Gen0ReductionCount:u32 Reason:u32 GlobalMechanisms:u32 C PauseMode:u32 MemoryPressure:u32 CondemnReasons0:u32 CondemnReasons1:u32
r 208 GCLOHCompact C Count:u16
r 209 GCFitBucketInfo C BucketKind:u16 TotalSize:u64 Count:u16
r 250 ExceptionCatchStart EntryEIP:u64 MethodID:u64 MethodName:z C
r 251 ExceptionCatchStop
r 252 ExceptionFinallyStart EntryEIP:u64 MethodID:u64 MethodName:z C
r 253 ExceptionFinallyStop
r 254 ExceptionFilterStart EntryEIP:u64 MethodID:u64 MethodName:z C
r 255 ExceptionFilterStop
r 256 ExceptionThrownStop
r 280 TieredCompilationSettings C Flags:u32
r 281 TieredCompilationPause C
r 282 TieredCompilationResume C NewMethodCount:u32
r 283 TieredCompilationBackgroundJitStart C PendingMethodCount:u32
r 284 TieredCompilationBackgroundJitStop C PendingMethodCount:u32 JittedMethodCount:u32
r 290 AssemblyLoadStart C AssemblyName:z AssemblyPath:z RequestingAssembly:z AssemblyLoadContext:z RequestingAssemblyLoadContext:z
r 291 AssemblyLoadStop C AssemblyName:z AssemblyPath:z RequestingAssembly:z AssemblyLoadContext:z RequestingAssemblyLoadContext:z Success:u32 ResultAssemblyName:z ResultAssemblyPath:z Cached:u32
r 301 WaitHandleWaitStart WaitSource:u8 AssociatedObjectID:u64 C
r 302 WaitHandleWaitStop C
r 303 AllocationSampled AllocationKind:u32 C TypeID:u64 TypeName:z Address:u64 ObjectSize:u64 SampledByteOffset:u64
d 10 GCSettingsRundown HardLimit:u64 LOHThreshold:u64 PhysicalMemoryConfig:u64 Gen0MinBudgetConfig:u64 Gen0MaxBudgetConfig:u64 HighMemPercentConfig:u32 BitSettings:u32 C
d 143 MethodDCStartVerbose MethodID:u64 ModuleID:u64 MethodStartAddress:u64 MethodSize:u32 MethodToken:u32 MethodFlags:u32 MethodNamespace:z MethodName:z MethodSignature:z C ReJITID:u64
d 144 MethodDCEndVerbose MethodID:u64 ModuleID:u64 MethodStartAddress:u64 MethodSize:u32 MethodToken:u32 MethodFlags:u32 MethodNamespace:z MethodName:z MethodSignature:z C ReJITID:u64
d 146 DCEndComplete C
d 148 DCEndInit C
d 150 MethodDCEndILToNativeMap MethodID:u64 ReJITID:u64 MethodExtent:u8 CountOfMapEntries:u16
d 152 DomainModuleDCEnd ModuleID:u64 AssemblyID:u64 AppDomainID:u64 ModuleFlags:u32 Reserved1:u32 ModuleILPath:z ModuleNativePath:z C
d 154 ModuleDCEnd ModuleID:u64 AssemblyID:u64 ModuleFlags:u32 Reserved1:u32 ModuleILPath:z ModuleNativePath:z C ManagedPdbSignature:guid ManagedPdbAge:u32 ManagedPdbBuildPath:z
d 156 AssemblyDCEnd AssemblyID:u64 AppDomainID:u64 BindingID:u64 AssemblyFlags:u32 FullyQualifiedAssemblyName:z C
d 158 AppDomainDCEnd AppDomainID:u64 AppDomainFlags:u32 AppDomainName:z AppDomainIndex:u32 C
d 187 RuntimeInformationDCEnd C Sku:u16 BclMajorVersion:u16 BclMinorVersion:u16 BclBuildNumber:u16 BclQfeNumber:u16 VMMajorVersion:u16 VMMinorVersion:u16 VMBuildNumber:u16 VMQfeNumber:u16 StartupFlags:u32 StartupMode:u8 CommandLine:z ComObjectGuid:guid RuntimeDllPath:z
d 280 TieredCompilationSettingsDCEnd C Flags:u32
p 1 GCDecision DoCompact:u32 C
p 2 GCSettings SegmentSize:u64 LargeObjectSegmentSize:u64 ServerGC:u32 C
p 3 GCOptimized DesiredAllocation:u64 NewAllocation:u64 GenerationNumber:u32 C
p 6 GCJoin Heap:u32 JoinTime:u32 JoinType:u32 C
p 7 PrvGCMarkStackRoots HeapNum:u32 C
p 8 PrvGCMarkFinalizeQueueRoots HeapNum:u32 C
p 9 PrvGCMarkHandles HeapNum:u32 C
p 10 PrvGCMarkCards HeapNum:u32 C
p 11 BGCBegin C
p 12 BGC1stNonConEnd C
p 13 BGC1stConEnd C
p 14 BGC2ndNonConBegin C
p 15 BGC2ndNonConEnd C
p 16 BGC2ndConBegin C
p 17 BGC2ndConEnd C
p 18 BGCPlanEnd C
p 19 BGCSweepEnd C
p 20 BGCDrainMark Objects:u64 C
p 21 BGCRevisit Pages:u64 Objects:u64 IsLarge:u32 C
p 22 BGCOverflow Min:u64 Max:u64 Objects:u64 IsLarge:u32 C GenNumber:u32
p 23 BGCAllocWaitBegin Reason:u32 C
p 24 BGCAllocWaitEnd Reason:u32 C
p 25 GCFullNotify GenNumber:u32 IsAlloc:u32 C
p 26 BGC1stSweepEnd GenNumber:u32 C
p 192 PrvFinalizeObject TypeID:u64 ObjectID:u64 C TypeName:z
p 194 PrvSetGCHandle HandleID:u64 ObjectID:u64 Kind:u32 Generation:u32 AppDomainID:u64 C
p 195 PrvDestroyGCHandle HandleID:u64 C
p 199 PinPlugAtGCTime PlugStart:u64 PlugEnd:u64 GapBeforeSize:u64 C
p 201 MulticoreJit C String1:z String2:z Int1:u32 Int2:u32 Int3:u32
p 202 MulticoreJitMethodCodeReturned C ModuleID:u64 MethodID:u64
";

/// An event of the runtime as its manifest has it.
#[derive(Debug)]
pub struct RuntimeEventKind {
    /// Its name.
    pub name: &'static str,
    /// Its fields, but for lists at the end.
    pub fields: Vec<Field>,
}

static KINDS: LazyLock<FxHashMap<(&'static str, u32), RuntimeEventKind>> =
    LazyLock::new(|| EVENTS.lines().filter_map(parse).collect());

/// What the manifest says of an event of the runtime; `None` for those of others, and those that are not known here.
#[must_use]
pub fn runtime_event_kind(kind: &EventKind) -> Option<&'static RuntimeEventKind> {
    let provider = [RUNTIME, RUNDOWN, PRIVATE]
        .into_iter()
        .find(|provider| *provider == kind.provider)?;
    KINDS.get(&(provider, kind.id))
}

/// Name and fields of any event, from its stream or from the manifest. Fields that an event does not have are left out; what
/// cannot be told has a number for its name.
#[must_use]
pub fn decode<'a>(kind: &'a EventKind, payload: &[u8]) -> (String, Vec<(&'a str, Value<'a>)>) {
    if let Some(known) = runtime_event_kind(kind) {
        return (
            known.name.to_owned(),
            Value::parse_whole(&known.fields, payload),
        );
    }
    let name = match kind.name.as_str() {
        "" => format!("Event{}", kind.id),
        name => name.to_owned(),
    };
    let fields = kind.fields.as_deref().unwrap_or_default();
    (name, Value::parse_whole(fields, payload))
}

fn parse(line: &'static str) -> Option<((&'static str, u32), RuntimeEventKind)> {
    let mut words = line.split(' ');
    let provider = match words.next()? {
        "r" => RUNTIME,
        "d" => RUNDOWN,
        "p" => PRIVATE,
        _ => return None,
    };
    let id = words.next()?.parse().ok()?;
    let name = words.next()?;
    let fields: Option<_> = words.map(field).collect();
    let kind = RuntimeEventKind {
        name,
        fields: fields?,
    };
    Some(((provider, id), kind))
}

fn field(word: &str) -> Option<Field> {
    let (name, kind) = match word {
        "C" => ("ClrInstanceID", "u16"),
        word => word.split_once(':')?,
    };
    let kind = match kind {
        "u8" => FieldType::Unsigned { bytes: 1 },
        "u16" => FieldType::Unsigned { bytes: 2 },
        "u32" => FieldType::Unsigned { bytes: 4 },
        "u64" => FieldType::Unsigned { bytes: 8 },
        "f64" => FieldType::Double,
        "guid" => FieldType::Guid,
        "z" => FieldType::Utf16Text,
        _ => return None,
    };
    Some(Field {
        name: name.to_owned(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        assert_eq!(KINDS.len(), EVENTS.lines().count());
    }

    #[test]
    fn an_older_version_lacks_the_last_fields() {
        let kind = EventKind {
            provider: RUNTIME.into(),
            id: 1,
            ..EventKind::default()
        };
        let payload = [1_u32, 2, 0, 1].map(u32::to_le_bytes).concat();
        let (name, fields) = decode(&kind, &payload);
        assert_eq!(name, "GCStart");
        assert_eq!(fields.len(), 4);
        assert_eq!(fields[1], ("Depth", Value::Unsigned(2)));
    }

    #[test]
    fn providers_number_their_events_themselves() {
        let name = |provider: &str| {
            let kind = EventKind {
                provider: provider.into(),
                id: 10,
                ..EventKind::default()
            };
            decode(&kind, &[]).0
        };
        let names = [RUNTIME, RUNDOWN, PRIVATE, "Own"].map(name);
        let known = ["GCAllocationTick", "GCSettingsRundown", "PrvGCMarkCards"];
        assert_eq!(names[..3], known);
        assert_eq!(names[3], "Event10");
    }
}
