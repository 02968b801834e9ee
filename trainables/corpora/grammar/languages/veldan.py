"""Veldan: subject–verb–object and fusional, with articles, three genders, three cases and prepositions."""

from trainables.corpora.grammar.description import Contrast, Language

_NOMINAL = """
                        singular  plural
    masculine nominative   -o       -i
    masculine accusative   -on      -is
    masculine dative       -oi      -im
    feminine  nominative   -a       -e
    feminine  accusative   -an      -es
    feminine  dative       -ai      -em
    neuter    nominative   -u       -ua
    neuter    accusative   -un      -uas
    neuter    dative       -ui      -uam
"""

VELDAN = Language(
    name="veldan",
    script="latin",
    segments={"C": "b d f g k l m n p r s t v", "V": "a e i o u", "N": "n r l s"},
    features={
        "referent": "protagonist protagonist companion stranger",
        "number": "singular singular singular plural plural",
        "gender": "masculine feminine neuter",
        "case": "nominative accusative dative",
        "person": "third | first second",
        "tense": "present past past",
        "valency": "intransitive transitive | reporting",
    },
    lexicon={
        "article": "= l",
        "indefinite": "= un",
        "possessive": "= sa",
        "relative": "= kv",
        "pronoun": "= iz",
        "speaker": "=",
        "noun masculine": "160 CVC CVNC CVCVC CVCVNC",
        "noun feminine": "160 CVC CVNC CVCVC CVCVNC",
        "noun neuter": "120 CVC CVNC CVCVC CVCVNC",
        "verb intransitive": "100 CVC CVNC CVCVC",
        "verb transitive": "160 CVC CVNC CVCVC",
        "verb reporting": "12 CVC CVNC",
        "adjective": "140 CVCVC CVNCVC",
        "adverb": "60 CVCme CVCVCme",
        "temporal present": "5 VNdi VCVNdi",
        "temporal past": "5 VNdi VCVNdi",
        "preposition accusative": "4 CV CVN",
        "preposition dative": "4 CV CVN",
        "numeral": "8 CVNC CVCi",
    },
    paradigms={
        "noun": (_NOMINAL,),
        "adjective": (_NOMINAL,),
        "article": (_NOMINAL,),
        "indefinite": (_NOMINAL,),
        "relative": (_NOMINAL,),
        "pronoun": (_NOMINAL,),
        "possessive": (
            """
                        masculine feminine neuter
            singular      -sto      -sta     -stu
            plural        -sti      -ste     -stua
            """,
        ),
        "speaker": (
            """
                        singular plural
            first          mi      nosi
            second         ti      vosi
            """,
        ),
        "verb": (
            """
                             singular  plural
            first  present      -am     -amo
            second present      -er     -ero
            third  present      -et     -ent
            first  past         -iva    -ivamo
            second past         -ives   -iveto
            third  past         -iv     -ivun
            """,
        ),
    },
    rules={
        "episode": """
            3 introduction(number gender referent) resumption(number gender)
                assertion(number gender referent)
            2 introduction(number gender referent) resumption(number gender) resumption(number gender)
            2 introduction(number gender referent) assertion(number gender referent)
                resumption(number gender)
            2 assertion conversation
            1 question(number gender) answer(number gender) assertion
        """,
        "introduction": """
            3 indefinite(nominative number gender) noun(nominative number gender referent)
                predicate(number gender) .
            2 indefinite(nominative number gender) adjective(nominative number gender)
                noun(nominative number gender referent) predicate(number gender) .
        """,
        "resumption": "1 pronoun(nominative number gender) predicate(number gender) .",
        "assertion": """
            4 plain(number gender referent)
            2 relativised(number gender referent)
            2 located(number gender referent)
            2 owning(number gender referent)
            2 dated(number gender referent)
            1 coordinated(gender)
        """,
        "plain": "1 np(nominative number gender referent) predicate(number gender) .",
        "relativised": """
            1 np(nominative number gender referent) relative_clause(number gender)
                predicate(number gender) .
        """,
        "relative_clause": """
            1 , relative(nominative number gender) verb(transitive third number) np(accusative) ,
        """,
        "located": "1 np(nominative number gender referent) verb(intransitive third number) pp .",
        "owning": """
            1 np(nominative number gender referent) verb(transitive third number) possessum(number gender) .
        """,
        "dated": """
            1 temporal(tense) np(nominative number gender referent) verb(intransitive third number tense) .
        """,
        "coordinated": """
            1 np(nominative gender protagonist) 'e' np(nominative gender companion)
                predicate(plural gender) .
        """,
        "question": "1 'esk' np(nominative number gender) predicate(number gender) ?",
        "answer": """
            2 'si' , pronoun(nominative number gender) predicate(number gender) .
            1 'no' , pronoun(nominative number gender) 'ne' predicate(number gender) .
        """,
        "conversation": """
            2 speaker(first number) verb(intransitive first number) adverb .
            2 speaker(first number) verb(transitive first number) np(accusative) .
            1 speaker(second number) verb(intransitive second number) adverb .
            1 'esk' speaker(second number) verb(transitive second number) np(accusative) ?
        """,
        "np": """
            4 article(case number gender) noun(case number gender referent)
            3 article(case number gender) adjective(case number gender) noun(case number gender referent)
        """,
        "object": """
            5 np(accusative)
            1 numeral noun(accusative plural)
        """,
        "possessum": "1 possessive(number gender) noun(accusative)",
        "pp": """
            1 preposition(accusative) np(accusative)
            1 preposition(dative) np(dative)
        """,
        "predicate": """
            3 verb(intransitive third number) adverb?
            5 verb(transitive third number) object pp?
            2 verb(transitive third number) possessum(number gender)
            2 verb(intransitive third number) pp
            1 'ne' verb(transitive third number) object
            1 verb(reporting third number) 'ke' np(nominative number2 gender2) predicate(number2 gender2)
        """,
    },
    contrasts=(
        Contrast("subject–verb agreement in number", "plain", "predicate verb", "number"),
        Contrast(
            "subject–verb agreement in number across a relative clause",
            "relativised",
            "predicate verb",
            "number",
            attractor="relative_clause noun",
        ),
        Contrast("adjective–noun agreement in gender", "plain", "np adjective", "gender"),
        Contrast("preposition government", "located", "pp noun", "case", values="accusative dative"),
        Contrast("possessive–antecedent agreement in gender", "owning", "possessum possessive", "gender"),
        Contrast("sequence of tense and temporal adverb", "dated", "verb", "tense"),
        Contrast("order of article and noun phrase", "plain", "np article"),
    ),
)
